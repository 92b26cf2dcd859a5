"""Schemes of the compressed-tensors format: fp8 by channel, int8, and packed 4-bit weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from impl.parameter import (
    BasevLLMParameter,
    ChannelQuantScaleParameter,
    GroupQuantScaleParameter,
    ModelWeightParameter,
    PackedvLLMParameter,
    PerTensorScaleParameter,
    WeightLoader,
)
from impl.quantization.activations import FP8, round_to_fp8, round_to_int8
from impl.quantization.base_config import LinearMethodBase, QuantizationConfig, QuantizedLayer

NUM_BITS = 4
PACK_FACTOR = torch.iinfo(torch.int32).bits // NUM_BITS
# Without offsets in the checkpoint the unsigned number that stands for 0.
SYMMETRIC_ZERO = 1 << (NUM_BITS - 1)


@dataclass(frozen=True)
class CompressedTensorsConfig(QuantizationConfig):
    """One scheme for every linear layer.

    Attributes:
        scheme: How the layers are quantised.
        ignored_layers: Names of layers that are left as they are.
    """

    scheme: LinearMethodBase
    ignored_layers: tuple[str, ...] = ()

    @classmethod
    def get_name(cls) -> str:
        return "compressed-tensors"

    def get_quant_method(self, prefix: str) -> LinearMethodBase | None:
        return None if prefix in self.ignored_layers else self.scheme


def _common(layer: QuantizedLayer, weight_loader: WeightLoader) -> dict[str, Any]:
    return {"weight_loader": weight_loader, "tp_rank": layer.tp_rank, "tp_size": layer.tp_size}


class CompressedTensorsW8A8Fp8(LinearMethodBase):
    """float8_e4m3fn with one scale a row of the weight, and one a row of the activations."""

    def create_weights(
        self,
        layer: QuantizedLayer,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        weight_loader: WeightLoader,
    ) -> None:
        """Register ``weight`` ``[out, in]`` and ``weight_scale`` ``[out, 1]``."""
        rows, common = sum(output_partition_sizes), _common(layer, weight_loader)
        weight = torch.empty(rows, input_size_per_partition, dtype=FP8)
        layer.register_parameter("weight", ModelWeightParameter(weight, output_dim=0, **common))
        scale = torch.empty(rows, 1, dtype=torch.float32)
        layer.register_parameter(
            "weight_scale", ChannelQuantScaleParameter(scale, output_dim=0, **common)
        )

    def apply(
        self, layer: QuantizedLayer, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        out = F.linear(round_to_fp8(x), self.dequantize(layer, torch.float32)).to(x.dtype)
        return out if bias is None else out + bias

    def dequantize(self, layer: QuantizedLayer, dtype: torch.dtype) -> torch.Tensor:
        return (layer.weight.float() * layer.weight_scale).to(dtype)


@dataclass(frozen=True)
class CompressedTensorsW8A8Int8(LinearMethodBase):
    """int8 with one scale a row of the weight.

    Attributes:
        is_static_input_scheme: One activation scale in the checkpoint, instead of one taken
            from each row.
        input_symmetric: Whether 0 stands for 0 in static activations; otherwise their offset
            is in the checkpoint.
    """

    is_static_input_scheme: bool = False
    input_symmetric: bool = True

    def create_weights(
        self,
        layer: QuantizedLayer,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        weight_loader: WeightLoader,
    ) -> None:
        """Register ``weight`` ``[out, in]``, ``weight_scale`` ``[out, 1]`` and the inputs' own.

        Those are ``input_scale`` ``[1]`` and ``input_zero_point`` ``[1]`` where activations
        are static, the latter where 0 does not stand for 0.
        """
        rows, common = sum(output_partition_sizes), _common(layer, weight_loader)
        weight = torch.empty(rows, input_size_per_partition, dtype=torch.int8)
        layer.register_parameter("weight", ModelWeightParameter(weight, output_dim=0, **common))
        scale = torch.empty(rows, 1, dtype=torch.float32)
        layer.register_parameter(
            "weight_scale", ChannelQuantScaleParameter(scale, output_dim=0, **common)
        )
        if self.is_static_input_scheme:
            one = PerTensorScaleParameter(torch.empty(1, dtype=torch.float32), **common)
            layer.register_parameter("input_scale", one)
            if not self.input_symmetric:
                zero = PerTensorScaleParameter(torch.empty(1, dtype=torch.int8), **common)
                layer.register_parameter("input_zero_point", zero)

    def apply(
        self, layer: QuantizedLayer, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        if self.is_static_input_scheme:
            zero_point = None if self.input_symmetric else layer.input_zero_point
            rounded = round_to_int8(x, layer.input_scale, zero_point)
        else:
            rounded = round_to_int8(x)
        out = F.linear(rounded, self.dequantize(layer, torch.float32)).to(x.dtype)
        return out if bias is None else out + bias

    def dequantize(self, layer: QuantizedLayer, dtype: torch.dtype) -> torch.Tensor:
        return (layer.weight.float() * layer.weight_scale).to(dtype)


@dataclass(frozen=True)
class CompressedTensorsWNA16(LinearMethodBase):
    """4-bit weights, eight in each int32, with a scale for each group of inputs of a row.

    Attributes:
        group_size: Inputs of one scale.
        symmetric: Whether 8 stands for 0; otherwise each group's offset is in the checkpoint,
            packed by eight along the rows.

    Raises:
        ValueError: ``group_size`` is below 1.
    """

    group_size: int
    symmetric: bool = True

    def __post_init__(self) -> None:
        if self.group_size < 1:
            raise ValueError(f"group_size is {self.group_size}, but must be at least 1")

    @property
    def row_block(self) -> int:
        return 1 if self.symmetric else PACK_FACTOR

    def create_weights(
        self,
        layer: QuantizedLayer,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        weight_loader: WeightLoader,
    ) -> None:
        """Register the packed weight and what belongs to it.

        Those are ``weight_packed`` ``[out, in / 8]``, ``weight_scale``
        ``[out, in / group_size]``, ``weight_zero_point`` ``[out / 8, in / group_size]``, rounded
        up, where there are offsets, and ``weight_shape``, the two extents of the whole weight.

        Raises:
            ValueError: The inputs are no multiple of 8, or of group_size.
        """
        columns, rows = input_size_per_partition, sum(output_partition_sizes)
        if columns % math.lcm(PACK_FACTOR, self.group_size):
            raise ValueError(
                f"input size {columns} must be a multiple of {PACK_FACTOR}, the weights of one "
                f"element, and of group_size {self.group_size}"
            )
        groups, common = columns // self.group_size, _common(layer, weight_loader)
        matrix: dict[str, Any] = {"output_dim": 0, **common}
        layer.register_parameter(
            "weight_packed",
            PackedvLLMParameter(
                torch.empty(rows, columns // PACK_FACTOR, dtype=torch.int32), **matrix
            ),
        )
        scale = torch.empty(rows, groups, dtype=params_dtype)
        layer.register_parameter("weight_scale", GroupQuantScaleParameter(scale, **matrix))
        shape = torch.empty(2, dtype=torch.int64)
        layer.register_parameter("weight_shape", BasevLLMParameter(shape, **common))
        if not self.symmetric:
            layer.register_parameter(
                "weight_zero_point",
                PackedvLLMParameter(
                    torch.empty(-(-rows // PACK_FACTOR), groups, dtype=torch.int32), **matrix
                ),
            )

    def apply(
        self, layer: QuantizedLayer, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        out = F.linear(x.float(), self.dequantize(layer, torch.float32)).to(x.dtype)
        return out if bias is None else out + bias

    def dequantize(self, layer: QuantizedLayer, dtype: torch.dtype) -> torch.Tensor:
        numbers = unpack(layer.weight_packed, dim=1)
        zeros: int | torch.Tensor = SYMMETRIC_ZERO
        if not self.symmetric:
            zeros = unpack(layer.weight_zero_point, dim=0)[: numbers.shape[0]]
            zeros = zeros.repeat_interleave(self.group_size, 1)
        scales = layer.weight_scale.float().repeat_interleave(self.group_size, 1)
        return ((numbers - zeros).float() * scales).to(dtype)


def unpack(packed: torch.Tensor, dim: int) -> torch.Tensor:
    """The eight unsigned 4-bit numbers of each int32, lowest bits first, laid along ``dim``."""
    shifts = torch.arange(0, 32, NUM_BITS, dtype=torch.int32, device=packed.device)
    numbers = (packed.unsqueeze(-1) >> shifts) & (2**NUM_BITS - 1)
    return numbers.movedim(-1, dim + 1).flatten(dim, dim + 1)

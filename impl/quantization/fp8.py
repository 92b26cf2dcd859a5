"""Checkpoints in float8_e4m3fn with one scale a tensor, or one a block of the weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F

from impl.parameter import (
    BlockQuantScaleParameter,
    ModelWeightParameter,
    PerTensorScaleParameter,
    WeightLoader,
)
from impl.quantization.activations import FP8, round_groups_to_fp8, round_to_fp8
from impl.quantization.base_config import LinearMethodBase, QuantizationConfig, QuantizedLayer


@dataclass(frozen=True)
class Fp8Config(QuantizationConfig):
    """Weights and activations in float8_e4m3fn.

    Attributes:
        activation_scheme: ``static`` for an activation scale in the checkpoint, ``dynamic``
            for one taken from each row.
        weight_block_size: Rows and columns of one scale of the weight; None for one scale of
            the whole weight.
        ignored_layers: Names of layers that are left as they are.

    Raises:
        ValueError: Blocks with a static activation scale, or a block without rows or columns.
    """

    activation_scheme: Literal["static", "dynamic"] = "dynamic"
    weight_block_size: tuple[int, int] | None = None
    ignored_layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.weight_block_size is None:
            return
        if self.activation_scheme != "dynamic":
            raise ValueError(
                f"weight_block_size {self.weight_block_size} with activation_scheme "
                f"{self.activation_scheme!r}: blocks take dynamic activations"
            )
        if min(self.weight_block_size) < 1:
            raise ValueError(f"weight_block_size {self.weight_block_size} must be at least (1, 1)")

    @classmethod
    def get_name(cls) -> str:
        return "fp8"

    def get_quant_method(self, prefix: str) -> LinearMethodBase | None:
        return None if prefix in self.ignored_layers else Fp8LinearMethod(self)


class Fp8LinearMethod(LinearMethodBase):
    """See :class:`Fp8Config`."""

    def __init__(self, quant_config: Fp8Config) -> None:
        self.quant_config = quant_config
        self.weight_block_size = quant_config.weight_block_size
        self.act_q_static = quant_config.activation_scheme == "static"

    @property
    def row_block(self) -> int:
        return self.weight_block_size[0] if self.weight_block_size else 1

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
        """Register ``weight`` ``[out, in]`` and its scales.

        Those are ``weight_scale`` ``[1]``, or ``weight_scale_inv`` of one element a block; and
        ``input_scale`` ``[1]`` where activations are static.
        """
        rows = sum(output_partition_sizes)
        common: dict[str, Any] = {
            "weight_loader": weight_loader,
            "tp_rank": layer.tp_rank,
            "tp_size": layer.tp_size,
        }
        weight = torch.empty(rows, input_size_per_partition, dtype=FP8)
        layer.register_parameter("weight", ModelWeightParameter(weight, output_dim=0, **common))
        if self.weight_block_size is None:
            scale = PerTensorScaleParameter(torch.empty(1, dtype=torch.float32), **common)
            layer.register_parameter("weight_scale", scale)
        else:
            block_n, block_k = self.weight_block_size
            blocks = torch.empty(-(-rows // block_n), -(-input_size_per_partition // block_k))
            layer.register_parameter(
                "weight_scale_inv",
                BlockQuantScaleParameter(blocks.float(), output_dim=0, **common),
            )
        if self.act_q_static:
            scale = PerTensorScaleParameter(torch.empty(1, dtype=torch.float32), **common)
            layer.register_parameter("input_scale", scale)

    def apply(
        self, layer: QuantizedLayer, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        if self.weight_block_size is None:
            rounded = round_to_fp8(x, layer.input_scale if self.act_q_static else None)
        else:
            rounded = round_groups_to_fp8(x, self.weight_block_size[1])
        out = F.linear(rounded, self.dequantize(layer, torch.float32)).to(x.dtype)
        return out if bias is None else out + bias

    def dequantize(self, layer: QuantizedLayer, dtype: torch.dtype) -> torch.Tensor:
        weight: torch.Tensor = layer.weight.float()
        if self.weight_block_size is None:
            return (weight * layer.weight_scale).to(dtype)
        block_n, block_k = self.weight_block_size
        scales = layer.weight_scale_inv.repeat_interleave(block_n, 0)[: weight.shape[0]]
        scales = scales.repeat_interleave(block_k, 1)[:, : weight.shape[1]]
        return (weight * scales).to(dtype)

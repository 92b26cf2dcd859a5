"""Weights in the dtype of the parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from impl.parameter import ModelWeightParameter, WeightLoader
from impl.quantization.base_config import LinearMethodBase, QuantizedLayer


class UnquantizedLinearMethod(LinearMethodBase):
    """Weights in the dtype of the parameters, multiplied as they are."""

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
        """Register ``weight``, ``[out, in]``."""
        rows = sum(output_partition_sizes)
        layer.register_parameter(
            "weight",
            ModelWeightParameter(
                torch.empty(rows, input_size_per_partition, dtype=params_dtype),
                output_dim=0,
                weight_loader=weight_loader,
                tp_rank=layer.tp_rank,
                tp_size=layer.tp_size,
            ),
        )

    def apply(
        self, layer: QuantizedLayer, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return F.linear(x, layer.weight, bias)

    def apply_rows(
        self,
        layer: QuantizedLayer,
        x: torch.Tensor,
        start: int,
        length: int,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class; multiplies by these rows of the weight alone."""
        rows = slice(start, start + length)
        return F.linear(x, layer.weight[rows], None if bias is None else bias[rows])

    def dequantize(self, layer: QuantizedLayer, dtype: torch.dtype) -> torch.Tensor:
        weight: torch.Tensor = layer.weight.to(dtype)
        return weight

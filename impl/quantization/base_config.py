"""What a quantisation scheme must offer to the linear layers and to the MLA layer."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import torch

from impl.parameter import WeightLoader

# A module with tp_rank and tp_size, and with the parameters that create_weights registers.
QuantizedLayer = Any


class LinearMethodBase(abc.ABC):
    """How a linear layer keeps its weights and multiplies by them.

    Attributes:
        can_dequantize: Whether :meth:`dequantize` gives the weight back. A layer whose weight
            the MLA layer absorbs must be able to.
    """

    can_dequantize: ClassVar[bool] = True

    @property
    def row_block(self) -> int:
        """Output rows that share one scale or one packed element: no shard may cut them."""
        return 1

    @abc.abstractmethod
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
        """Register the parameters of one shard.

        Args:
            layer: A layer with ``tp_rank`` and ``tp_size``.
            input_size_per_partition: Columns of the shard.
            output_partition_sizes: Rows of the shard, of one weight.
            input_size: Columns of the whole weight.
            output_size: Rows of the whole weight.
            params_dtype: dtype of what is not quantised.
            weight_loader: Of every parameter.
        """

    def process_weights_after_loading(self, layer: QuantizedLayer) -> None:  # noqa: B027
        """Derive what :meth:`apply` needs beside the parameters; may run again.

        The parameters keep their names and shapes, so that they can be loaded again.
        """

    @abc.abstractmethod
    def apply(
        self, layer: QuantizedLayer, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``x @ weight.T + bias`` in the dtype of ``x``: ``[rows, in]`` to ``[rows, out]``."""

    def apply_rows(
        self,
        layer: QuantizedLayer,
        x: torch.Tensor,
        start: int,
        length: int,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Columns ``start`` to ``start + length`` of :meth:`apply`, ``bias`` being the whole.

        Multiplies by the whole weight unless a scheme knows how to cut it.
        """
        return self.apply(layer, x, bias).narrow(1, start, length)

    @abc.abstractmethod
    def dequantize(self, layer: QuantizedLayer, dtype: torch.dtype) -> torch.Tensor:
        """The shard's weight, ``[out, in]``; a view of a parameter where nothing is to do."""


class QuantizationConfig(abc.ABC):
    """Which linear layers are quantised, and how.

    Attributes:
        ignored_layers: Names of layers that are left as they are.
    """

    ignored_layers: tuple[str, ...]

    @classmethod
    @abc.abstractmethod
    def get_name(cls) -> str:
        """The name of the scheme."""

    @abc.abstractmethod
    def get_quant_method(self, prefix: str) -> LinearMethodBase | None:
        """How the layer called ``prefix`` is quantised; None where it is not."""

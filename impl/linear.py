"""Linear layers whose shard may be chosen apart from the process's tensor-parallel rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from impl.communication_op import tensor_model_parallel_all_reduce
from impl.config import get_current_vllm_config
from impl.layout import check_row_blocks, dcp_rank_of, divide, shard_range
from impl.parallel_state import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    get_tp_group,
)
from impl.parameter import BasevLLMParameter, ColumnvLLMParameter
from impl.quantization import QuantizationConfig, UnquantizedLinearMethod


def _effective_shard(disable_tp: bool, tp_rank: int | None, tp_size: int | None) -> tuple[int, int]:
    """Rank and size that a layer is sharded by.

    Raises:
        ValueError: Only one of the overrides is given, or they name no shard.
    """
    if disable_tp:
        return 0, 1
    if tp_rank is None and tp_size is None:
        return get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
    if tp_rank is None or tp_size is None:
        raise ValueError(
            f"tp_rank={tp_rank} with tp_size={tp_size}: give both to shard apart from the "
            "process's rank, or neither"
        )
    if tp_size < 1 or not 0 <= tp_rank < tp_size:
        raise ValueError(
            f"tp_rank={tp_rank} with tp_size={tp_size} names no shard: tp_rank must be at "
            "least 0 and below tp_size"
        )
    return tp_rank, tp_size


class LinearBase(nn.Module):
    """What every linear layer has: extents, its shard, and a quantisation method.

    Args:
        input_size: Width of the input.
        output_size: Width of the whole output, over every shard.
        params_dtype: dtype of the parameters; torch's default where None.
        quant_config: How the weights are quantised; None where they are not.
        prefix: Name of the layer in the checkpoint.
        disable_tp: Keep the whole weight on every rank, whatever the overrides say.
        tp_rank: Shard to hold, in place of the process's tensor-parallel rank.
        tp_size: Number of shards, in place of the tensor-parallel world size.

    Raises:
        ValueError: The overrides name no shard.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype | None = None,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
        *,
        disable_tp: bool = False,
        tp_rank: int | None = None,
        tp_size: int | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.output_size = output_size
        self.params_dtype = params_dtype or torch.get_default_dtype()
        self.quant_config = quant_config
        quant_method = quant_config.get_quant_method(prefix) if quant_config else None
        self.quant_method = quant_method or UnquantizedLinearMethod()
        self.prefix = prefix
        self.disable_tp = disable_tp
        self.tp_rank, self.tp_size = _effective_shard(disable_tp, tp_rank, tp_size)


class ColumnParallelLinear(LinearBase):
    """``y = x A^T + b`` with the rows of A, and so the columns of y, sharded.

    Args:
        bias: Whether there is a bias.
        gather_output: Return the whole output on every rank.
        skip_bias_add: Return the bias instead of adding it.
        return_bias: Return ``(output, bias)`` instead of the output.
        input_size: See :class:`LinearBase`, as for every other argument.

    Raises:
        NotImplementedError: gather_output with overrides that differ from the process's
            rank and size: the ranks of the TP group then hold some shards several times.
        ValueError: The number of shards does not divide output_size, or would cut rows that
            share a scale.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        gather_output: bool = False,
        skip_bias_add: bool = False,
        params_dtype: torch.dtype | None = None,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
        *,
        return_bias: bool = True,
        disable_tp: bool = False,
        tp_rank: int | None = None,
        tp_size: int | None = None,
    ) -> None:
        super().__init__(
            input_size,
            output_size,
            params_dtype,
            quant_config,
            prefix,
            disable_tp=disable_tp,
            tp_rank=tp_rank,
            tp_size=tp_size,
        )
        self.input_size_per_partition = input_size
        self.output_size_per_partition = divide(
            output_size, self.tp_size, f"output_size of {prefix or 'the layer'} by tp_size"
        )
        check_row_blocks(prefix, output_size, self.tp_size, self.quant_method.row_block)
        self.gather_output = gather_output
        self.skip_bias_add = skip_bias_add
        self.return_bias = return_bias
        if gather_output and not disable_tp:
            process = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
            if (self.tp_rank, self.tp_size) != process:
                raise NotImplementedError(
                    f"gather_output with tp_rank={self.tp_rank} tp_size={self.tp_size} on TP "
                    f"rank {process[0]} of {process[1]}: the TP group does not hold each shard "
                    "once. Gather outside the layer, or leave the overrides out"
                )
        self.quant_method.create_weights(
            self,
            self.input_size_per_partition,
            [self.output_size_per_partition],
            input_size,
            output_size,
            self.params_dtype,
            self.weight_loader_v2,
        )
        if bias:
            self.bias = ColumnvLLMParameter(
                torch.empty(self.output_size_per_partition, dtype=self.params_dtype),
                output_dim=0,
                weight_loader=self.weight_loader,
                tp_rank=self.tp_rank,
                tp_size=self.tp_size,
            )
        else:
            self.register_parameter("bias", None)

    def weight_loader(self, param: Parameter, loaded_weight: torch.Tensor) -> None:
        """Copy this layer's shard of a checkpoint tensor into ``param``.

        Args:
            param: A parameter of this layer.
            loaded_weight: The whole tensor, as it stands in the checkpoint.

        Raises:
            ValueError: The tensor has not the shape of the whole parameter.
        """
        if loaded_weight.dim() == 0:
            loaded_weight = loaded_weight.reshape(1)
        output_dim: int | None = getattr(param, "output_dim", None)
        whole = list(param.shape)
        if output_dim is not None:
            whole[output_dim] *= self.tp_size
        if list(loaded_weight.shape) != whole:
            raise ValueError(
                f"{self.prefix or 'layer'}: the checkpoint tensor has shape "
                f"{tuple(loaded_weight.shape)}, but the whole parameter has {tuple(whole)}"
            )
        if output_dim is not None:
            start, length = shard_range(
                whole[output_dim], self.tp_rank, self.tp_size, "checkpoint tensor by tp_size"
            )
            loaded_weight = loaded_weight.narrow(output_dim, start, length)
        param.data.copy_(loaded_weight)

    def weight_loader_v2(self, param: BasevLLMParameter, loaded_weight: torch.Tensor) -> None:
        """Have ``param`` copy its own shard of a checkpoint tensor.

        Args:
            param: A parameter of this layer.
            loaded_weight: The whole tensor; a scale may come without an axis.

        Raises:
            ValueError: The tensor has not the shape of the whole parameter.
        """
        if loaded_weight.dim() == 0:
            loaded_weight = loaded_weight.reshape(1)
        param.load_column_parallel_weight(loaded_weight)

    def forward(
        self, input_: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """Project ``[rows, input_size]`` to ``[rows, output_size_per_partition]``.

        Returns:
            The output (all ``output_size`` columns with gather_output), and with return_bias
            the bias where skip_bias_add keeps it out of the output, else None.
        """
        output = self.quant_method.apply(self, input_, self._added_bias)
        if self.gather_output and self.tp_size > 1:
            output = get_tp_group().all_gather(output)
        if not self.return_bias:
            return output
        return output, self.bias if self.skip_bias_add else None

    @property
    def _added_bias(self) -> Parameter | None:
        return None if self.skip_bias_add else self.bias

    def extra_repr(self) -> str:
        return (
            f"in_features={self.input_size}, out_features={self.output_size_per_partition}, "
            f"bias={self.bias is not None}, tp_rank={self.tp_rank}, tp_size={self.tp_size}"
        )


class DCPGroupColumnParallelLinear(ColumnParallelLinear):
    """Column-parallel linear with one shard for each DCP group instead of each rank.

    Every rank of a group holds the group's rows, the heads of all its ranks in rank order, and
    computes the group's whole output. Where the group has one rank, this is the plain layer.

    Attributes:
        group_size: Ranks of the DCP group.
        rank_in_group: This rank's index in it.
        qrep_active: Whether the output holds more heads than this rank's own.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        place = dcp_rank_of(
            get_tensor_model_parallel_rank(),
            get_tensor_model_parallel_world_size(),
            get_current_vllm_config().parallel_config.decode_context_parallel_size,
        )
        super().__init__(*args, **kwargs, tp_rank=place.group, tp_size=place.num_groups)
        self.group_size = place.group_size
        self.rank_in_group = place.rank_in_group
        self.qrep_active = place.group_size > 1

    def _local_view(self, out: torch.Tensor) -> torch.Tensor:
        """This rank's heads of a group output.

        Args:
            out: ``[..., group heads, head_dim]``.

        Returns:
            ``[..., heads of this rank, head_dim]``, contiguous, in memory of its own unless
            the group has one rank: then it is ``out`` itself.

        Raises:
            ValueError: The group's ranks do not divide the heads.
        """
        if self.group_size == 1:
            return out
        start, heads = shard_range(
            out.shape[-2], self.rank_in_group, self.group_size, "heads of the group output"
        )
        # clone, not contiguous: a slice of a single row is contiguous and would stay an alias.
        return out.narrow(-2, start, heads).clone(memory_format=torch.contiguous_format)

    def forward_local(self, input_: torch.Tensor) -> torch.Tensor:
        """Project to this rank's own columns, as the plain layer would: no group work.

        Args:
            input_: ``[rows, input_size]``.

        Returns:
            ``[rows, output_size / tensor parallel size]``.

        Raises:
            ValueError: The group's ranks do not divide the columns.
        """
        start, length = shard_range(
            self.output_size_per_partition,
            self.rank_in_group,
            self.group_size,
            "columns of the group output",
        )
        return self.quant_method.apply_rows(self, input_, start, length, self._added_bias)


class RowParallelLinear(LinearBase):
    """``y = x A^T`` with the columns of A, and so those of x, sharded; y is summed over ranks.

    Args:
        input_size: Width of the whole input, over every shard.
        output_size: Width of the output.
        params_dtype: dtype of the weight; torch's default where None.
        prefix: Name of the layer in the checkpoint.

    Raises:
        ValueError: The tensor-parallel ranks do not divide input_size.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__(input_size, output_size, params_dtype=params_dtype, prefix=prefix)
        self.input_size_per_partition = divide(
            input_size, self.tp_size, f"input_size of {prefix or 'the layer'} by tp_size"
        )
        self.quant_method.create_weights(
            self,
            self.input_size_per_partition,
            [output_size],
            input_size,
            output_size,
            self.params_dtype,
            self.weight_loader,
        )

    def weight_loader(self, param: Parameter, loaded_weight: torch.Tensor) -> None:
        """Copy this rank's columns of the checkpoint's weight.

        Raises:
            ValueError: The tensor has not the shape of the whole weight.
        """
        if tuple(loaded_weight.shape) != (self.output_size, self.input_size):
            raise ValueError(
                f"{self.prefix or 'layer'}: the checkpoint tensor has shape "
                f"{tuple(loaded_weight.shape)}, but the whole weight has "
                f"{(self.output_size, self.input_size)}"
            )
        start, length = shard_range(self.input_size, self.tp_rank, self.tp_size, "input columns")
        param.data.copy_(loaded_weight.narrow(1, start, length))

    def forward(self, input_: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Project ``[rows, input_size_per_partition]`` to ``[rows, output_size]``."""
        return tensor_model_parallel_all_reduce(self.quant_method.apply(self, input_)), None

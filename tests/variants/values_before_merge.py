"""Impl, but that it projects values by its group's W_UV before the merge, not behind it.

What crosses the group is then ``v_head_dim`` wide instead of ``kv_lora_rank``, and each rank
holds W_UV of its whole group, replicating the query or not; vllm #48196 and ATOM #2001 do so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fixtures.subjects import registry
from fixtures.subjects.impl import subject as impl
from fixtures.subjects.impl.rank import ImplRank
from fixtures.subjects.subject import Subject, WorldSource
from impl.mla_attention import MLAAttention
from impl.parallel_state import GroupCoordinator

NAME = "values_before_merge"
registry.SUBJECTS[NAME] = registry.Entry(__name__, ("simulated",))


class ValuesBeforeMerge(MLAAttention):
    """Merges values ``[B, Hg, V]`` in place of compressed ones ``[B, Hg, L]``."""

    W_UV_group: torch.Tensor | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("W_UV_group", None, persistent=False)
        self._merge, self.dcp_combine = self.dcp_combine, self._merge_values

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        super().process_weights_after_loading(act_dtype)
        if self.dcp_group.world_size > 1:
            self._derive("W_UV_group", self.dcp_group.all_gather(self.W_UV.contiguous(), dim=0))

    def _merge_values(
        self, out: torch.Tensor, lse: torch.Tensor, group: GroupCoordinator, **options: Any
    ) -> torch.Tensor:
        assert self.W_UV_group is not None
        values = torch.bmm(out.transpose(0, 1), self.W_UV_group).transpose(0, 1).contiguous()
        merged: torch.Tensor = self._merge(values, lse, group, **options)
        return merged

    def _v_up_proj(self, x: torch.Tensor, output: torch.Tensor) -> None:
        if self.dcp_group.world_size > 1:
            output.copy_(x.flatten(1))
        else:
            super()._v_up_proj(x, output)


class ValuesBeforeMergeRank(ImplRank):
    """Hands that layer out in place of impl's, where a layer is asked for alone."""

    MLAAttention = ValuesBeforeMerge

    def dcp_weights(self, attention: nn.Module) -> Mapping[str, torch.Tensor]:
        group = getattr(attention, "W_UV_group", None)
        return {} if group is None else {"W_UV": group}


def load(worlds: WorldSource, device: str = "cpu") -> Subject:
    """The variant, its ranks in ``worlds``."""
    adapter = (__name__, ValuesBeforeMergeRank.__name__)
    return dataclasses.replace(impl.load(worlds, device), name=NAME, adapter=adapter)

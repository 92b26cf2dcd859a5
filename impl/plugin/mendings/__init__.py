"""A mending for each finding, in a module that is called as the finding's script is."""

from __future__ import annotations

from impl.plugin.mending import Mending
from impl.plugin.mendings import (
    all_reduce_of_a_strided_tensor,
    attention_classes_ignore_the_switch,
    gather_output_duplicates_columns,
    lora_on_kv_b_proj_has_no_effect,
    lora_skips_the_group_layer,
    merge_for_three_ranks,
    transposed_weight_cannot_be_saved,
    triton_mla_rounds_lse,
)

MENDINGS: tuple[Mending, ...] = (
    transposed_weight_cannot_be_saved.MENDING,
    lora_skips_the_group_layer.MENDING,
    lora_on_kv_b_proj_has_no_effect.MENDING,
    attention_classes_ignore_the_switch.MENDING,
    triton_mla_rounds_lse.MENDING,
    merge_for_three_ranks.MENDING,
    gather_output_duplicates_columns.MENDING,
    all_reduce_of_a_strided_tensor.MENDING,
)

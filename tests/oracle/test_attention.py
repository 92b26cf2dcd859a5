"""The oracle against textbook attention that never absorbs the up-projection."""

from __future__ import annotations

import torch
from hypothesis import given, settings

from fixtures.cases.decode import DecodeCase
from fixtures.cases.merge import MergeCase
from fixtures.oracle import decode, dense, merge
from fixtures.oracle.bounds import exact
from fixtures.strategies.decode import decode_cases
from fixtures.strategies.merge import merge_cases

SETTINGS = settings(max_examples=60, derandomize=True, database=None, deadline=None)


@SETTINGS
@given(case=decode_cases())
def test_absorbed_equals_unabsorbed_attention(case: DecodeCase) -> None:
    dims, P, L = case.dims, case.dims.qk_nope_head_dim, case.dims.kv_lora_rank
    up = case.kv_b_weight().double().view(dims.num_heads, P + dims.v_head_dim, L)
    queries = case.input().double() @ case.q_weight().double().T
    rows, row = [], 0
    for index, request in enumerate(case.batch.decodes):
        cache = case.keys(index).double()
        for position in request.positions:
            seen = cache[: position + 1]
            q = queries[row].view(dims.num_heads, 1, dims.qk_head_dim)
            k_nope = torch.einsum("kl,hpl->hkp", seen[:, :L], up[:, :P])
            k_rope = seen[:, L:].expand(dims.num_heads, -1, -1)
            value = torch.einsum("kl,hvl->hkv", seen[:, :L], up[:, P:])
            k = torch.cat([k_nope, k_rope], dim=-1)
            out = torch.nn.functional.scaled_dot_product_attention(q, k, value, scale=dims.scale)
            absorbed = torch.einsum("hqp,hpl->hql", q[..., :P], up[:, :P])
            query = exact(torch.cat([absorbed, q[..., P:]], dim=-1).squeeze(1))
            expected = dense.attend_absorbed(
                dims, up[:, P:], query, exact(seen), case.layout.dcp, case.torch_dtype
            )
            torch.testing.assert_close(expected.value, out.squeeze(1), rtol=1e-10, atol=1e-12)
            rows.append(out.reshape(-1))
            row += 1
    # A query is handed over in the layer's dtype, and what the oracle expects is that of it.
    assert not decode.expected(case).violations(torch.stack(rows)).any()


@SETTINGS
@given(case=merge_cases(dtypes=["float32"], score_scales=[1.0]))
def test_merging_partials_equals_attention_over_all_keys(case: MergeCase) -> None:
    partials = [case.partial(rank) for rank in range(case.layout.dcp)]
    out, lse = merge.merge(
        torch.stack([p[0] for p in partials]), torch.stack([p[1] for p in partials])
    )
    expected, expected_lse = merge.expected(case)
    torch.testing.assert_close(out, expected.value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, expected_lse.value, rtol=1e-5, atol=1e-5)

"""DEC once more: each prefill backend of a subject, through the layer and its merge of chunks."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.oracle import decode as oracle
from fixtures.programs import decode
from fixtures.strategies.prefill import chunked_prefills
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.both_paths import check_paths
from properties.contract import clause

BACKENDS = ("FLASH_ATTN", "FLASHINFER", "TRTLLM_RAGGED")


@pytest.mark.parametrize("backend", BACKENDS)
@clause("DEC-2", "DEC-5", needs=(Capability.PREFILL, Capability.PREFILL_BACKENDS), effort=0.2)
@given(data=st.data())
def test_a_prefill_backend_attends_contexts_chunk_by_chunk(
    subject: Subject, backend: str, data: st.DataObject
) -> None:
    case = data.draw(
        st.just(dataclasses.replace(pinned.CONTEXTS_IN_CHUNKS, prefill=backend))
        | chunked_prefills(backend),
        label="case",
    )
    steps = subject.run(case.layout, decode.both_paths, case, replicated=False)
    check_paths(case, steps, oracle.expected(case))

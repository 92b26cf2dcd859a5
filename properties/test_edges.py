"""DEC-11: keys beyond what a quantized cache can hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fixtures.cases.decode import DecodeCase, Fp8Cache
from fixtures.model.numbers import Pattern
from fixtures.oracle import decode as oracle
from fixtures.programs import decode
from fixtures.strategies.decode import decode_cases
from fixtures.strategies.layouts import layouts
from fixtures.subjects.subject import Capability, Subject
from properties.both_paths import check_paths
from properties.contract import clause

# 448 times these is below a quarter, and a standard deviation is 1 or 8.
SATURATING = st.builds(
    Fp8Cache,
    k_scale=st.sampled_from([2.0**-11, 2.0**-13]),
    q_scale=st.sampled_from([1.0, 2.0**-9]),
    quantized_query=st.booleans(),
)


@clause("DEC-11", needs=(Capability.REPLICATED_DECODE, Capability.FP8_CACHE), effort=0.3)
@given(
    case=decode_cases(
        layout=layouts(min_dcp=2),
        dtypes=("float32", "bfloat16"),
        patterns=(Pattern.NORMAL, Pattern.LARGE, Pattern.EQUAL_ROWS),
        fp8=SATURATING,
    )
)
def test_keys_beyond_the_largest_number_saturate(subject: Subject, case: DecodeCase) -> None:
    check_paths(case, subject.run(case.layout, decode.both_paths, case), oracle.expected(case))

"""MEM-2's bytes, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from gate.plan.deployment import Deployment
from gate.plan.memory import replicated_bytes
from gate.plan.models import find


@pytest.mark.parametrize(
    ("name", "dcp", "copied", "viewed"),
    [
        # 16 heads a rank: 16*192*1536 = 4,718,592 numbers of projection a rank gained, 2 bytes
        # each; 16*128*512 = 1,048,576 of W_UK_T.
        ("DeepSeek-R1", 2, 9_437_184 + 4_194_304, 9_437_184 + 2_097_152),
        ("DeepSeek-R1", 4, 28_311_552 + 8_388_608, 28_311_552 + 6_291_456),
        ("DeepSeek-R1", 8, 66_060_288 + 16_777_216, 66_060_288 + 14_680_064),
        # 8 heads a rank: 8*192*1536 = 2,359,296 and 8*128*512 = 524,288.
        ("Kimi-K2", 2, 4_718_592 + 2_097_152, 4_718_592 + 1_048_576),
        ("Kimi-K2", 4, 14_155_776 + 4_194_304, 14_155_776 + 3_145_728),
        ("Kimi-K2", 8, 33_030_144 + 8_388_608, 33_030_144 + 7_340_032),
        # 8 heads a rank: 8*256*2048 = 4,194,304 and 8*192*512 = 786,432.
        ("GLM-5", 2, 8_388_608 + 3_145_728, 8_388_608 + 1_572_864),
        ("GLM-5", 4, 25_165_824 + 6_291_456, 25_165_824 + 4_718_592),
        ("GLM-5", 8, 58_720_256 + 12_582_912, 58_720_256 + 11_010_048),
    ],
)
def test_bytes_of_a_layer(name: str, dcp: int, copied: int, viewed: int) -> None:
    deployment = Deployment(find(name), 8, dcp)
    assert replicated_bytes(deployment) == copied
    assert replicated_bytes(deployment, local_is_view=True) == viewed


def test_a_float8_projection_has_one_byte_and_w_uk_two() -> None:
    deployment = Deployment(find("DeepSeek-R1"), 8, 2, "fp8", "fp8")
    assert replicated_bytes(deployment) == 4_718_592 + 4_194_304

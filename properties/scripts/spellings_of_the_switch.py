"""VLLM_DCP_Q_REPLICATE takes integers alone, and does not say so.

Expected: a boolean for the usual spellings, or an error that names the variable. Got: a bare
ValueError of int() while layers are built, for true, on and the empty string alike; and 2 is on.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python spellings_of_the_switch.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from vllm import envs

NAMED = "an error that names the variable"
wrong = False
for text, expected in (
    ("0", "off"),
    ("1", "on"),
    ("", "off"),
    ("true", "on"),
    ("off", "off"),
    ("2", NAMED),
):
    os.environ["VLLM_DCP_Q_REPLICATE"] = text
    try:
        got = "on" if envs.VLLM_DCP_Q_REPLICATE else "off"
    except ValueError as error:
        named = "VLLM_DCP_Q_REPLICATE" in str(error)
        got = NAMED if named else f"ValueError: {error}"
    wrong |= got not in (expected, NAMED)
    print(f"{text!r}: expected {expected}, got {got}")
raise SystemExit(wrong)

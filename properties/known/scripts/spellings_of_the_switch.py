"""VLLM_DCP_Q_REPLICATE takes integers alone, and does not say so.

Expected: a boolean for the usual spellings, or an error that names the variable. Got: a bare
ValueError of int() while layers are built, for true, on and the empty string alike; and 2 is on.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python spellings_of_the_switch.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from vllm import envs

unclear = False
for text in ("0", "1", "", "true", "off", "2"):
    os.environ["VLLM_DCP_Q_REPLICATE"] = text
    try:
        print(f"{text!r}: {envs.VLLM_DCP_Q_REPLICATE}")
    except ValueError as error:
        unclear |= "VLLM_DCP_Q_REPLICATE" not in str(error)
        print(f"{text!r}: ValueError: {error}")
raise SystemExit(unclear)

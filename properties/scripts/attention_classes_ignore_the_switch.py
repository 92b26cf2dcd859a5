"""Most MLA attention classes of vLLM never read the query replication switch.

Expected: every class that makes the query of an MLA layer replicates it where the switch is on,
or start-up says that it does not. Got: only DeepSeek-V2's class and its heirs do; GLM's default,
which is on, has no effect, since its class is DeepseekV32Attention; and dots3's full attention, an
heir, reads variable and field, its sliding attention the variable alone. Before 0.29.0 there is no
field.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python attention_classes_ignore_the_switch.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
import ast
import inspect
import re
from pathlib import Path

import vllm
from vllm.config import ParallelConfig

root = Path(inspect.getfile(vllm)).parent
has_field = hasattr(ParallelConfig, "dcp_q_replicate")
ignoring = 0
for path in sorted([*root.glob("models/**/*.py"), *root.glob("model_executor/models/*.py")]):
    # What replaces these classes on other platforms is left out.
    if {"amd", "xpu", "cpu"} & set(path.parts):
        continue
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        source, bases = ast.unparse(node), [ast.unparse(base) for base in node.bases]
        makes = re.search(r"\b(MLAAttention|MultiHeadLatentAttentionWrapper)\(", source)
        if "DeepseekV2MLAAttention" in bases:
            print(f"{path.relative_to(root)}: {node.name}: an heir of DeepSeek-V2's")
        elif re.search(r"\.q_(b_)?proj\b", source) and (makes or "MLAAttention" in bases):
            variable, field = "VLLM_DCP_Q_REPLICATE" in source, ".dcp_q_replicate)" in source
            ignoring += not variable or not (field or not has_field)
            print(
                f"{path.relative_to(root)}: {node.name}: reads the variable: {variable}, "
                f"reads the field: {field if has_field else 'there is none'}"
            )
raise SystemExit(bool(ignoring))

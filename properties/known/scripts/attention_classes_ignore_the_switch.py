"""Most MLA attention classes of vLLM never read the query replication switch.

Expected: every class that makes the query of an MLA layer replicates it where the switch is on,
or start-up says that it does not. Got: only DeepSeek-V2's class and its heirs do; GLM's default,
which is on, has no effect, since its class is DeepseekV32Attention; and dots3's full attention
reads variable and field, its sliding attention the variable alone.

Needs torch and vLLM 0.29.0 to 0.33.0, no GPU:  python attention_classes_ignore_the_switch.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
import ast
import inspect
import re
from pathlib import Path

import vllm

root = Path(inspect.getfile(vllm)).parent
ignoring = 0
for path in sorted([*root.glob("models/**/*.py"), *root.glob("model_executor/models/*.py")]):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        source = ast.unparse(node)
        makes = re.search(r"\b(MLAAttention|MultiHeadLatentAttentionWrapper)\(", source)
        heir = any("DeepseekV2MLAAttention" in ast.unparse(base) for base in node.bases)
        if "q_b_proj" not in source or not makes or heir:
            continue
        variable, field = "VLLM_DCP_Q_REPLICATE" in source, ".dcp_q_replicate)" in source
        ignoring += not (variable and field)
        print(
            f"{path.relative_to(root)}: {node.name}: reads the variable: {variable}, "
            f"reads the field: {field}"
        )
raise SystemExit(bool(ignoring))

"""Has vLLM load its general plug-ins, and prints whether a class of its is mended then."""

from __future__ import annotations

# Imported first, it has vLLM run on a CPU.
import fixtures.subjects.vllm.rank  # noqa: F401


def _main() -> None:
    from vllm.lora.model_manager import LoRAModelManager
    from vllm.plugins import load_general_plugins

    before = LoRAModelManager._add_adapter
    load_general_plugins()
    print("as it was" if LoRAModelManager._add_adapter is before else "mended")


_main()

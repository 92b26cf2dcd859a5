"""A plug-in that mends a released vLLM: ``vllm.general_plugins`` calls :func:`register`.

Installed beside a vLLM and switched on by one environment variable, it puts what ``impl`` does in
vLLM's own classes: a finding at a time (``mendings``), and what saves memory beside (``gains``).
No file of vLLM is changed.
"""

from __future__ import annotations

import logging
import os
from importlib import metadata

from impl.plugin.gains import GAINS
from impl.plugin.mending import after_import
from impl.plugin.mendings import MENDINGS

VARIABLE = "DCP_QREP_PLUGIN"
# Below vLLM's own logger, so that its level and its handlers count here too.
logger = logging.getLogger("vllm.dcp_qrep_plugin")


def register() -> None:
    """Mend the vLLM of this process, where the variable asks for it and the release is known.

    vLLM calls it in each of its processes, and perhaps more than once in one.
    """
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return
    version = metadata.version("vllm")
    written = (*MENDINGS, *GAINS)
    active = [mending for mending in written if mending.serves(version)]
    left_out = sorted(mending.name for mending in written if mending not in active)
    if left_out:
        logger.warning(
            "%s: vLLM %s is none that %s was written for, so that this vLLM stays as it is there",
            VARIABLE,
            version,
            ", ".join(left_out) if active else "any mending",
        )
    after_import(active)

"""A plug-in that mends a released vLLM: ``vllm.general_plugins`` calls :func:`register`.

Installed beside a vLLM and switched on by one environment variable, it puts what ``impl`` does in
vLLM's own classes: a finding at a time (``mendings``), and what saves memory beside (``gains``).
No file of vLLM is changed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import metadata

from packaging.version import InvalidVersion

from impl.plugin.gains import GAINS
from impl.plugin.mending import Mending, after_import, logger
from impl.plugin.mendings import MENDINGS

VARIABLE = "DCP_QREP_PLUGIN"


def register() -> None:
    """Mend the vLLM of this process, where the variable asks for it and the release is known.

    vLLM calls it in each of its processes, and perhaps more than once in one.
    """
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return
    written = (*MENDINGS, *GAINS)
    try:
        version = metadata.version("vllm")
        active = [mending for mending in written if mending.serves(version)]
    except (metadata.PackageNotFoundError, InvalidVersion) as error:
        logger.warning("%s: this vLLM stays as it is, of unknown version: %r", VARIABLE, error)
        return
    left_out = sorted(mending.name for mending in written if mending not in active)
    if left_out:
        logger.warning(
            "%s: vLLM %s is none that %s was written for, so that this vLLM stays as it is there",
            VARIABLE,
            version,
            ", ".join(left_out) if active else "any mending",
        )
    if active:
        logger.info("%s mends vLLM %s: %s", VARIABLE, version, _names(active))
        _register_variable(active)
    after_import(active)


def _register_variable(active: Sequence[Mending]) -> None:
    """Name the variable to vLLM.

    It hands those it knows to workers on other nodes, and keeps compiled code apart by their
    values: here the mendings, as a mending may change what is compiled.
    """
    from vllm import envs

    envs.environment_variables[VARIABLE] = lambda: _names(active)


def _names(mendings: Sequence[Mending]) -> str:
    return ",".join(mending.name for mending in mendings)

"""The environment variable that switches query replication."""

from __future__ import annotations

import os

VLLM_DCP_Q_REPLICATE = "VLLM_DCP_Q_REPLICATE"

_TRUE = frozenset({"1", "true", "on"})
_FALSE = frozenset({"0", "false", "off"})


def raw() -> str:
    """``VLLM_DCP_Q_REPLICATE`` as it stands; empty where it is unset."""
    return os.environ.get(VLLM_DCP_Q_REPLICATE, "")


def dcp_q_replicate() -> bool | None:
    """Read ``VLLM_DCP_Q_REPLICATE``.

    Returns:
        The boolean it spells, in any case and with blanks around it, or None where it is
        unset or blank: then the configuration decides.

    Raises:
        ValueError: It spells no boolean.
    """
    text = raw()
    word = text.strip().lower()
    if not word:
        return None
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(
        f"{VLLM_DCP_Q_REPLICATE} is {text!r}, which is no boolean: set it to 1, true or on to "
        "replicate the MLA query projection within each DCP group, to 0, false or off to "
        "all-gather the query, or unset it to follow the configuration"
    )

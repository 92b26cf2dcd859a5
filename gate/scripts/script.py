"""Write the script that shows a call."""

from __future__ import annotations

import functools

import jinja2

from fixtures.subjects.subject import Subject
from gate.scripts.calls import Call
from gate.scripts.families import NoScriptError, context_of


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("gate.scripts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(subject: Subject, call: Call, test: str) -> str:
    """Source of a script that has ``subject`` do ``call`` and prints expected and got.

    Args:
        subject: Whose failure it is.
        call: What its ranks did.
        test: Node id of the property that asked for it.

    Raises:
        NoScriptError: No script can show it; the message says why.
    """
    if subject.name != "vllm":
        raise NoScriptError(
            f"{subject.name} is part of this repository, and a script stands without it"
        )
    template, context = context_of(call)
    return (
        _environment()
        .get_template(template)
        .render(context, test=test, version=subject.version, call=call)
    )

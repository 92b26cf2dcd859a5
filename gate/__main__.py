"""``python -m gate``: one command line for all that is more than a pytest run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

import pytest

from gate.commands import compare, faults, findings, judge, matrix, plan, publish
from gate.exit_codes import ExitCode

_COMMANDS = {
    "judge": judge,
    "compare": compare,
    "matrix": matrix,
    "publish": publish,
    "faults": faults,
    "plan": plan,
    "findings": findings,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End with the exit code of wrong usage: argparse's own says "interrupted" here."""
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Run the command that ``arguments``, by default those of the process, name.

    Raises:
        SystemExit: The arguments are wrong, or ask for help.
    """
    parser = _Parser(prog="python -m gate", description="Judge implementations of the contract.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, module in _COMMANDS.items():
        assert module.__doc__
        summary = module.__doc__.strip().partition("\n")[0]
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        command.set_defaults(run=module.run, command=command)
    options = parser.parse_args(arguments)
    if "run" not in options:
        parser.print_help()
        return ExitCode.PASSED
    try:
        code: ExitCode = options.run(options)
    except pytest.UsageError as error:
        options.command.error(str(error))
    return code


if __name__ == "__main__":
    sys.exit(main())

"""The commands of ``python -m gate``, a module each.

The first line of a module's docstring is the command's help, ``add_arguments`` its arguments, and
``run`` does it and gives the exit code; a :class:`pytest.UsageError` that it raises is told as
argparse tells wrong arguments.
"""

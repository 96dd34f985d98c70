"""Command line `vkchi COMMAND ...` or `python -m vkchi COMMAND ...`.

$ vkchi doctor
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from vkchi.cli import tree


def main(argv: Sequence[str]) -> int:
    """Run the command that `argv` names by `cli.tree.main`; return the exit status.

    Ctrl-C prints a line on stderr and returns INTERRUPTED. An OSError returns FAILURE, with a line
    on stderr unless a pipe was closed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # names in IR may be unencodable
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = tree.main(argv)
        if sys.stdout is not None:  # None if the shell closed it
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return tree.INTERRUPTED
    except OSError as e:
        if e.filename is not None:
            print(f"{e.filename}: {e.strerror}", file=sys.stderr)
            return tree.FAILURE
        if sys.stdout is not None:  # discard buffered output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(e, BrokenPipeError):
            print(f"standard output cannot be written: {e.strerror}", file=sys.stderr)
        return tree.FAILURE
    return status


def entry() -> None:
    """The console script `vkchi`."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()

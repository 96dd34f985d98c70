"""`python -m vkchi COMMAND ...`: hands the rest of the line to the command's own module.

Owns: which commands there are.

    $ python -m vkchi ir saxpy.chi --pass simplify,dce
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any


def run_ir(argv: Sequence[str]) -> int:
    """Check IR text, run passes on it, interpret it."""
    from vkchi.ir.cli import main as ir_main

    return ir_main(argv, find_pass)


def find_pass(name: str) -> Callable[..., Any]:
    """A pass by its name. Raises KeyError saying which there are."""
    from vkchi.passes.pipeline import PASSES

    if name not in PASSES:
        raise KeyError(f"there is no pass `{name}`; there are {', '.join(PASSES)}")
    return PASSES[name]


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"ir": run_ir}


def main(argv: Sequence[str]) -> int:
    """Run the command that argv names; the exit status."""
    command = COMMANDS.get(argv[0]) if argv else None
    if command is not None:
        return command(argv[1:])
    lines = [f"  {name:8} {run.__doc__}" for name, run in COMMANDS.items()]
    print("\n".join(["usage: python -m vkchi COMMAND ...", *lines]), file=sys.stderr)
    return 0 if argv and argv[0] in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`vkchi COMMAND ...`, `python -m vkchi COMMAND ...`: hands the rest to the command's module.

Owns: which commands there are; how one ends that is interrupted, or whose output nobody takes.

    $ python -m vkchi ir saxpy.chi --pass simplify,dce
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

INTERRUPTED = 130  # as shells say of a program that Ctrl-C ended


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


def run_cache(argv: Sequence[str]) -> int:
    """List, explain, check and clear the compiled kernels on disk."""
    from vkchi.cache import listing

    if listing.verb_of(argv) == listing.VERB:
        return listing.main(argv)
    try:
        from vkchi.cache.cli import main as cache_main
    except ImportError as e:
        print(f"vkchi cache needs {e.name}: pip install 'vkchi[cli]'", file=sys.stderr)
        return 2
    return cache_main(argv)


def run_doctor(argv: Sequence[str]) -> int:
    """Say what this machine has for vkchi, what is wrong, and the command that mends it."""
    from vkchi.cli.doctor import main as doctor_main

    return doctor_main(argv)


def run_compile(argv: Sequence[str]) -> int:
    """Compile kernels for a device, be it here or only described, and say what came of it."""
    from vkchi.cli.compile import main as compile_main

    return compile_main(argv)


def run_example(argv: Sequence[str]) -> int:
    """Run an example of the source checkout, or list them."""
    from vkchi.cli.example import main as example_main

    return example_main(argv)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "ir": run_ir,
    "cache": run_cache,
    "compile": run_compile,
    "doctor": run_doctor,
    "example": run_example,
}


def main(argv: Sequence[str]) -> int:
    """Run the command that argv names; the exit status."""
    command = COMMANDS.get(argv[0]) if argv else None
    if command is not None:
        return _run(command, argv[1:])
    lines = [f"  {name:8} {run.__doc__}" for name, run in COMMANDS.items()]
    print(
        "\n".join(["usage: vkchi COMMAND ..., or python -m vkchi COMMAND ...", *lines]),
        file=sys.stderr,
    )
    return 0 if argv and argv[0] in ("-h", "--help") else 2


def _run(command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # names in IR may be more than a terminal can show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = command(argv)
        if sys.stdout is not None:  # else the shell closed it, and nothing was printed
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as e:
        if e.filename is not None:
            print(f"{e.filename}: {e.strerror}", file=sys.stderr)
            return 1
        if sys.stdout is not None:  # what is left goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(e, BrokenPipeError):
            print(f"standard output cannot be written: {e.strerror}", file=sys.stderr)
        return 1
    return status


def entry() -> None:
    """The console script `vkchi`."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()

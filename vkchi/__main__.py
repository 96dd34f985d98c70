"""Command line `vkchi COMMAND ...` or `python -m vkchi COMMAND ...`: dispatches to command modules.

Handles interrupts, and output to a closed pipe.

    $ python -m vkchi ir saxpy.chi --pass simplify,dce
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

INTERRUPTED = 130  # exit status that shells use for Ctrl-C


def run_ir(argv: Sequence[str]) -> int:
    """Check IR text, run passes on it, interpret it."""
    from vkchi.ir.ir_command import main as ir_main

    return ir_main(argv, find_pass)


def find_pass(name: str) -> Callable[..., Any]:
    """The pass called `name`. Raises KeyError with the list of passes."""
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
        from vkchi.cache.cache_command import main as cache_main
    except ImportError as e:
        print(f"vkchi cache needs {e.name}: pip install 'vkchi[cli]'", file=sys.stderr)
        return 2
    return cache_main(argv)


def run_doctor(argv: Sequence[str]) -> int:
    """Report the Vulkan setup of this machine, its faults, and commands to fix them."""
    from vkchi.cli.doctor import main as doctor_main

    return doctor_main(argv)


def run_compile(argv: Sequence[str]) -> int:
    """Compile kernels for a device, present or only described, and report the result."""
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
    """Run the command in `argv[0]`; return the exit status."""
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
    if isinstance(sys.stdout, io.TextIOWrapper):  # names in IR may be unencodable
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = command(argv)
        if sys.stdout is not None:  # None if the shell closed it
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as e:
        if e.filename is not None:
            print(f"{e.filename}: {e.strerror}", file=sys.stderr)
            return 1
        if sys.stdout is not None:  # discard buffered output
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

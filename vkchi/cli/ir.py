"""`vkchi ir FILE [--pass a,b] [--interp]`: check, transform and interpret IR text.

Exit status: 0 success; 1 an error in the text, in a pass name or in a value; 2 a usage error; 130
after Ctrl-C. Errors are one message on stderr.

    $ vkchi ir saxpy.chi --pass simplify,dce --interp --set a=2.5 --extent 4
    $ VKCHI_PRINT=ir python program.py 2>&1 | vkchi ir -
"""

from __future__ import annotations

import argparse
import linecache
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vkchi.cli.tree import FAILURE, SUCCESS
from vkchi.errors import ArgumentError, InvalidIR, VkchiError
from vkchi.ir.core import Func, Program, value_of
from vkchi.ir.interp import check_size, run_reference
from vkchi.ir.literal import number_bits
from vkchi.ir.text import parse, print_program
from vkchi.ir.verify import verify_program
from vkchi.types import Array, Scalar, Type, scalar_of, shape_of
from vkchi.types.lazy_numpy import np

STDIN = "<stdin>"
EXIT_STATUS = """exit status: 0 success; 1 an error in the text, in a pass name or in a value;
2 wrong command line; 130 interrupted"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_STATUS
    parser.add_argument("file", help="IR text, as VKCHI_PRINT=ir prints it; `-`: standard input")
    parser.add_argument(
        "--pass", dest="passes", default=[], type=lambda text: text.split(","),
        metavar="NAME,NAME", help="passes to run, in order",
    )  # fmt: skip
    parser.add_argument(
        "--interp",
        action="store_true",
        help="run it in the reference interpreter, print the arrays",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=NUMBER", type=_assignment,
        help="a value for a parameter (arrays: for every component); default 1, 2, 3, ...",
    )  # fmt: skip
    parser.add_argument(
        "--extent", type=_extent, default=8, help="size of every axis known at launch"
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the transformed IR; return 0, or 1 after a message on stderr."""
    try:
        _transform(given)
    except VkchiError as e:
        problem = str(e)
    except RecursionError:
        problem = f"{given.file}: nested deeper than Python's recursion limit allows"
    except MemoryError:
        problem = f"{given.file}: out of memory"
    else:
        return SUCCESS
    print(problem, file=sys.stderr)
    return FAILURE


def _transform(given: argparse.Namespace) -> None:
    program = parse(*_read(given.file))
    try:
        verify_program(program)
    except InvalidIR as e:  # a user error, since the text is the user's
        raise ArgumentError(e.finding) from None
    for name in given.passes:
        program = apply_pass(program, find_pass(name))
        verify_program(program)
    print(print_program(program), end="")
    if given.interp:
        _interpret(program, dict(given.set), given.extent)


def find_pass(name: str) -> Callable[..., Any]:
    """Return the pass called `name`. Raises ArgumentError, with the list of passes, if there is
    none."""
    from vkchi.opt.pipeline import PASSES

    if name not in PASSES:
        raise ArgumentError(f"there is no pass `{name}`; there are {', '.join(PASSES)}")
    return PASSES[name]


def _read(file: str) -> tuple[str, str]:
    """Return (text, name for messages) of a file or of standard input. Raises ArgumentError."""
    try:
        data = _read_stdin() if file == "-" else Path(file).read_bytes()
    except (OSError, ValueError) as e:  # ValueError: a name with a NUL
        raise ArgumentError(f"{file!r} cannot be read: {getattr(e, 'strerror', e)}") from None
    name = STDIN if file == "-" else file
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        raise ArgumentError(f"{name} is not text in UTF-8 (byte {e.start})") from None
    if file == "-":  # error messages quote source lines from linecache
        linecache.cache[STDIN] = (len(text), None, text.splitlines(keepends=True), STDIN)
    return text, name


def _read_stdin() -> bytes:
    if sys.stdin is None:  # closed by the shell
        raise ValueError("standard input is closed")
    return sys.stdin.buffer.read()


def apply_pass(program: Program, change: Callable[[Func], Func | Program]) -> Program:
    """Return the Program with a pass applied to each Func; a pass may return several for one."""
    funcs: list[Func] = []
    for fn in program.funcs:
        new = change(fn)
        funcs += new.funcs if isinstance(new, Program) else (new,)
    return Program(program.name, tuple(funcs))


def _assignment(text: str) -> tuple[str, str]:
    name, equals, number = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=NUMBER")
    return name, number


def _extent(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of elements")
    return int(text)


def _interpret(program: Program, given: Mapping[str, str], extent: int) -> None:
    params = {p.name: p.type for fn in program.funcs for p in fn.params}
    if not given.keys() <= params.keys():
        raise ArgumentError(f"--set: the parameters are {', '.join(params)}")
    args = {name: example_of(name, t, given.get(name), extent) for name, t in params.items()}
    for name, array in run_reference(program, args).items():
        print(f"; {name} =", np.array2string(array, separator=", ").replace("\n", "\n;   "))


def example_of(name: str, t: Type, number: str | None, extent: int) -> Any:
    """Return a numpy value for a parameter: filled with `number`, or 1, 2, 3, ... in row-major
    order.

    `extent` is the length of every axis of a dynamic shape. Raises ArgumentError if `number` does
    not fit the scalar type of t, or if the array exceeds the interpreter's limits.
    """
    shape = shape_of(t.elem if isinstance(t, Array) else t)
    elem: Scalar = scalar_of(t.elem if isinstance(t, Array) else t)
    if isinstance(t, Array):
        shape = ((extent,) * t.ndim if t.shape is None else t.shape) + shape
    check_size(f"%{name}", shape)
    if number is None:
        return np.arange(1, 1 + int(np.prod(shape))).astype(elem.dtype).reshape(shape)
    try:
        return np.full(shape, value_of(number_bits(number, elem), elem))[()]
    except (ValueError, OverflowError) as e:
        raise ArgumentError(f"--set: {e}") from None

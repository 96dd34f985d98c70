"""`python -m vkchi ir FILE [--pass a,b] [--interp]`: check IR text, run passes on it, interpret it.

Owns: the command. Must not know: which passes there are; it is given a way to find them.

    $ python -m vkchi ir saxpy.chi --pass simplify,dce --interp --set a=2.5 --extent 4
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vkchi.errors import ArgumentError, VkchiError
from vkchi.ir.core import Func, Program, value_of
from vkchi.ir.interp import run
from vkchi.ir.literal import number_bits
from vkchi.ir.text import parse, print_program
from vkchi.ir.verify import verify_program
from vkchi.types import Array, Scalar, Type, scalar_of, shape_of

FindPass = Callable[[str], "Callable[[Func], Func | Program]"]


def main(argv: Sequence[str], find_pass: FindPass) -> int:
    """Do what the command line says; the exit status. `find_pass` gives a pass by name, or raises
    KeyError saying which there are."""
    options = _options(argv)
    try:
        program = parse(Path(options.file).read_text(), options.file)
        verify_program(program)
        for name in options.passes:
            program = apply_pass(program, find_pass(name))
            verify_program(program)
        print(print_program(program), end="")
        if options.interp:
            _interpret(program, dict(options.set), options.extent)
    except (VkchiError, KeyError, OSError) as e:
        print(e.args[0] if isinstance(e, KeyError) else e, file=sys.stderr)
        return 1
    return 0


def apply_pass(program: Program, change: Callable[[Func], Func | Program]) -> Program:
    """The Program with every Func changed; a pass may make several of one."""
    funcs: list[Func] = []
    for fn in program.funcs:
        new = change(fn)
        funcs += new.funcs if isinstance(new, Program) else (new,)
    return Program(program.name, tuple(funcs))


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("vkchi ir", description="Check, transform and run CHI IR.")
    parser.add_argument("file", help="IR text, as VKCHI_PRINT=ir prints it")
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
        "--set", action="append", default=[], metavar="NAME=NUMBER",
        type=lambda text: tuple(text.split("=", 1)),
        help="a value for a parameter (arrays: for every component); default 1, 2, 3, ...",
    )  # fmt: skip
    parser.add_argument("--extent", type=int, default=8, help="size of every axis known at launch")
    return parser.parse_args(argv)


def _interpret(program: Program, given: Mapping[str, str], extent: int) -> None:
    params = {p.name: p.type for fn in program.funcs for p in fn.params}
    if not given.keys() <= params.keys():
        raise ArgumentError(f"--set: the parameters are {', '.join(params)}")
    args = {name: example_of(t, given.get(name), extent) for name, t in params.items()}
    for name, array in run(program, args).items():
        print(f"; {name} =", np.array2string(array, separator=", ").replace("\n", "\n;   "))


def example_of(t: Type, number: str | None, extent: int) -> Any:
    """A numpy value for a parameter: `number` everywhere, or 1, 2, 3, ... row by row."""
    shape = shape_of(t.elem if isinstance(t, Array) else t)
    elem: Scalar = scalar_of(t.elem if isinstance(t, Array) else t)
    if isinstance(t, Array):
        shape = ((extent,) * t.ndim if t.shape is None else t.shape) + shape
    if number is None:
        return np.arange(1, 1 + int(np.prod(shape))).astype(elem.dtype).reshape(shape)
    try:
        return np.full(shape, value_of(number_bits(number, elem), elem))[()]
    except ValueError as e:
        raise ArgumentError(f"--set: {e}") from None

"""Explain a kernel of a file without running it: loops, atomics, accesses, copied arguments.

The file is imported as by `vkchi compile`: launches are dropped.

    $ vkchi explain program.py:step --arg x=f32[1000000] --arg n=1000
"""

from __future__ import annotations

import argparse
import warnings

from vkchi.cli.compile import import_file, read_value, require_file, sample_call
from vkchi.cli.sample_arguments import find_name
from vkchi.cli.shader_recorder import recording_shaders
from vkchi.cli.tree import SUCCESS, WrongCommandLine
from vkchi.errors import ArgumentError, SerialLoopWarning
from vkchi.runtime import init

EXIT_STATUS = """exit status: 0 success; 1 the kernel is rejected, or the file fails;
2 wrong command line; 130 interrupted"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_STATUS
    parser.add_argument("what", metavar="FILE.py:KERNEL", help="FILE.py:kernel or :obj.method")
    parser.add_argument("--device", default="", help="a device here")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE",
                        help="an argument: x=f32[64,64], y=f32x3[9], n=5, f=a_global")  # fmt: skip
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the explanation of the kernel that the command line names; return SUCCESS.

    Raises WrongCommandLine and VkchiError.
    """
    path, _, name = given.what.rpartition(":")
    if not path.endswith(".py") or not name:
        raise WrongCommandLine("no kernel is given: vkchi explain FILE.py:KERNEL")
    try:
        values = dict(read_value(text) for text in given.arg)
    except ArgumentError as e:
        raise WrongCommandLine(str(e)) from None
    require_file(path)
    with recording_shaders(None, given.device), warnings.catch_warnings():
        warnings.simplefilter("ignore", SerialLoopWarning)  # the explanation says it
        init(log_level="error")
        names = import_file(path, given.rest)
        kernel = find_name(name, names)
        kernel.explain(*sample_call(kernel, name, values, names))
    return SUCCESS

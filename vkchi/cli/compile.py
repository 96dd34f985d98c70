"""Compile kernels for a device, which need not be present, or explain one, without running them.

The file is imported under its own name, so code under `if __name__ == "__main__"` is not run.
Kernels that the import calls are compiled too. Exit status: 0 success; 1 the file, a kernel or the
driver's compiler fails, or nothing was compiled; 2 a usage error.

    $ vkchi compile program.py:step --device navi31 --arg x=f32[64,64]
    $ vkchi explain program.py:step --arg x=f32[1000000] --arg n=1000
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from vkchi.cache.inspection.driver_report import CompileOutcome, compile_all, compile_on, read_caps
from vkchi.cli.tree import FAILURE, SUCCESS, WrongCommandLine
from vkchi.device import Device, list_devices
from vkchi.errors import ArgumentError, DeviceError, SerialLoopWarning, VkchiError
from vkchi.kernel import BoundKernel, Kernel
from vkchi.ndarray import ndarray as make_array
from vkchi.progress import track
from vkchi.runtime import init
from vkchi.signature import (
    ArrayParameter,
    Parameter,
    ScalarParameter,
    SelfParameter,
    TensorParameter,
    read_parameters,
)
from vkchi.target.devices import (
    DeviceDescription,
    DeviceInfo,
    find_described,
    known_names,
    names_of_family,
    select_device,
)
from vkchi.target.shader import Shader
from vkchi.types import SCALARS, shape_of, with_shape
from vkchi.types.lazy_numpy import np
from vkchi.vk.instance import Instance
from vkchi.vk.logical import Logical
from vkchi.vk.physical import Physical
from vkchi.vk.pipelines import Pipeline, Pipelines, Runnable
from vkchi.vk.sequence import Command, CommandSequence

EXIT_STATUS = """exit status: 0 success; 1 a kernel is rejected, the file fails, or nothing was
compiled; 2 wrong command line or device description; 130 interrupted"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_STATUS
    parser.add_argument("what", nargs="?", default="", metavar="FILE.py[:KERNEL]",
                        help="a file, FILE.py:kernel or FILE.py:obj.method")  # fmt: skip
    parser.add_argument(
        "--device",
        default="",
        help="a name of --list, a file, a device here, or radv:FAMILY (Mesa 23.1 to 25)",
    )
    add_values(parser)
    parser.add_argument("--isa", action="store_true", help="show the machine code")
    parser.add_argument("--spv", default="", metavar="FOLDER", help="write the SPIR-V there")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object")
    parser.add_argument("--list", action="store_true", help="devices that are known by description")
    parser.set_defaults(run=run)


def add_values(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE",
                        help="an argument: x=f32[64,64], y=f32x3[9], n=5, f=a_global")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Compile the kernels that the command line names, and print their properties.

    `--spv` also writes their SPIR-V to a folder; `--list` only prints the known devices. Returns
    FAILURE if the driver's compiler rejects a shader, or nothing was compiled. Raises
    WrongCommandLine and VkchiError.
    """
    if given.list:
        print("\n".join(known_names()))
        return SUCCESS
    if not given.what:
        raise WrongCommandLine(
            "no file is given: vkchi compile FILE.py:KERNEL; --list lists the known devices"
        )
    try:
        described = find_target(given.device)
        values = dict(read_value(text) for text in given.arg)
    except VkchiError as e:
        raise WrongCommandLine(str(e)) from None
    path, _, name = given.what.rpartition(":") if ".py:" in given.what else (given.what, "", "")
    if described is None and given.device:
        require_device(given.device)
    with recording_shaders(described, "" if described else given.device) as noted:
        compile_file(noted, path, name, values, given.rest)
        shaders = shaders_of(noted, name)
        outcomes = compile_with_driver(noted, shaders)
    try:
        if given.spv:
            write_modules(given.spv, shaders)
    except OSError as e:
        raise ArgumentError(f"--spv: {e.filename}: {e.strerror}") from None
    return show(given, noted, shaders, outcomes)


def require_device(name: str) -> None:
    """Raise DeviceError if no device of this machine matches `name`."""
    try:
        select_device(list_devices(), name)
    except DeviceError as e:
        raise DeviceError(
            f"{e}. vkchi compile --list lists devices that need not be here"
        ) from None


def find_target(name: str) -> DeviceDescription | None:
    """Return the device description that `name` selects; None if there is none.

    `name` may then be a device of this machine. `radv:vega10` and `gfx900` select a family of AMD
    GPUs. Raises ArgumentError, DeviceError.
    """
    kind, _, family = name.partition(":")
    found = None if kind == "radv" else find_described(name)
    if found is None and len(names_of_family(name)) > 1:
        kind, family = "radv", name
    if kind == "radv" and family:
        return DeviceDescription(f"AMD {family}", read_caps(family), family)
    return found


def read_value(text: str) -> tuple[str, str]:
    """Parse the NAME=VALUE of `--arg`. Raises ArgumentError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--arg is NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


# --- compiling -----------------------------------------------------------------------------------


def compile_file(
    noted: ShaderRecord, path: str, name: str, values: dict[str, str], argv: Sequence[str]
) -> None:
    """Initialize vkchi, import a file, and compile its kernel `name`, if given.

    A kernel that the import compiled is compiled again only for given `values`. Raises VkchiError.
    """
    require_file(path)
    init(log_level="error")
    names = import_file(path, argv)
    if name and (values or not shaders_of(noted, name)):
        kernel = find_name(name, names)
        arguments = sample_call(kernel, name, values, names)
        kernel.inspect(lambda kernel, args: None, *arguments)


def require_file(path: str) -> None:
    if not os.path.isfile(path):
        raise ArgumentError(f"there is no file {path!r}: name it as in FILE.py:kernel")


class HeadedStream(io.TextIOBase):
    """A text stream that writes a head to another one before its first output."""

    def __init__(self, stream: TextIO, head: str) -> None:
        self._stream, self._head = stream, head

    def write(self, text: str) -> int:
        head, self._head = self._head, ""
        if head:
            self._stream.write(head)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


def import_file(path: str, argv: Sequence[str]) -> dict[str, Any]:
    """Run a file with these arguments, not as `__main__`, and return its globals.

    Its output goes to stderr, after a line that says that its results are not valid. Raises vkchi's
    errors as they are, and ArgumentError for any other exception of the file.
    """
    before, folder = sys.argv, os.path.dirname(os.path.abspath(path))
    sys.argv = [path, *argv]
    sys.path.insert(0, folder)
    try:
        head = f"vkchi: kernels of {path} do not run here; results that it prints are not valid:\n"
        with contextlib.redirect_stdout(HeadedStream(sys.stderr, head)):
            return runpy.run_path(path, run_name=os.path.basename(path).removesuffix(".py"))
    except VkchiError:
        raise
    except SystemExit as e:
        raise ArgumentError(f"{path} ended by sys.exit({e.code!r}) while it was imported") from None
    except Exception as e:
        traceback.print_exc()
        raise ArgumentError(f"{path} failed while it was imported: {e}") from None
    finally:
        sys.argv = before
        sys.path.remove(folder)


def sample_call(
    kernel: Any, name: str, values: dict[str, str], names: dict[str, Any]
) -> list[Any]:  # fmt: skip
    """Return arguments of a kernel: given in `values`, or sampled from its annotations.

    Raises ArgumentError for anything but a kernel, for an unknown name in `values`, and for an
    argument that is neither given nor annotated.
    """
    if not isinstance(kernel, Kernel | BoundKernel):
        raise ArgumentError(f"{name} is no ti.kernel")
    plain: Any = kernel if isinstance(kernel, Kernel) else kernel.func
    if plain.is_method and plain is kernel:
        raise ArgumentError(f"{name} is a method: name it by an object of the file, as in obj.step")
    parameters = read_parameters(plain.__vkchi_func__, plain.is_method)
    wanted = [p for p in parameters if not isinstance(p, SelfParameter)]
    unknown = sorted(values.keys() - {p.name for p in wanted})
    if unknown:
        raise ArgumentError(f"{name} has no argument {', '.join(unknown)}")
    return [sample_argument(p, values, names) for p in wanted]


def shaders_of(noted: ShaderRecord, name: str) -> list[Shader]:
    """Return the recorded shaders of a kernel and its variants; all shaders for an empty name."""
    last = name.rpartition(".")[2]
    return [s for s in noted.shaders.values() if not last or s.name.partition(".")[0] == last]


def compile_with_driver(noted: ShaderRecord, shaders: Sequence[Shader]) -> list[CompileOutcome]:
    """Return the results of the driver's compiler, one per shader.

    They are empty for a described device without compiler. Raises DeviceError.
    """
    described, device = noted.described, noted.device
    if described is not None and described.radv:
        return compile_all(described.radv, shaders, described.caps)
    if described is not None or device is None:
        return [CompileOutcome(()) for _ in shaders]
    return [compile_on(device, shader) for shader in track(shaders, "compiled by the driver")]


# --- output --------------------------------------------------------------------------------------


def show(
    given: argparse.Namespace,
    noted: ShaderRecord,
    shaders: Sequence[Shader],
    outcomes: list[CompileOutcome],
) -> int:
    """Print the compiled shaders; return FAILURE if there are none or the driver rejects one."""
    rows = [row_of(s, o, with_code=given.isa) for s, o in zip(shaders, outcomes, strict=True)]
    refused = sum(bool(o.error) for o in outcomes)
    device = device_of(noted)
    if given.as_json:
        print(json.dumps({"device": device, "shaders": rows}, indent=1))
    else:
        for row in rows:
            print("\n".join(lines_of(row)))
        told = any(o.executables for o in outcomes) or refused
        print(f"{len(rows)} shaders for {device}, {refused} refused by its compiler"
              if told else f"{len(rows)} shaders for {device}; there is no compiler of its "
              "driver here that tells more")  # fmt: skip
    return FAILURE if refused or not rows else SUCCESS


def write_modules(folder: str, shaders: Sequence[Shader]) -> None:
    """Write each shader's SPIR-V to a file of the folder. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    for k, shader in enumerate(shaders):
        with open(os.path.join(folder, f"{k}.{shader.name}.spv"), "wb") as out:
            out.write(shader.words)


def device_of(noted: ShaderRecord) -> str:
    """Return the name of the target device."""
    described: DeviceDescription | None = noted.described
    if described is not None:
        return described.name
    return noted.device.info.name if noted.device is not None else ""


def row_of(shader: Shader, outcome: CompileOutcome, *, with_code: bool) -> dict[str, Any]:
    """Return a shader's properties as a dict for JSON."""
    row: dict[str, Any] = {
        "name": shader.name,
        "spirv_bytes": len(shader.words),
        "argument_bytes": shader.size_bytes,
        "workgroup": [axis.block for axis in shader.grid.axes] or [1],
        "needs": list(shader.needs),
    }
    if outcome.error:
        row["error"] = outcome.error
    if outcome.executables:
        last = outcome.executables[-1]
        row |= {"subgroup": last.subgroup_size, "common": last.common()}
        row["statistics"] = last.statistics
        if with_code:
            row["isa"] = last.machine_code()
    return row


def lines_of(row: dict[str, Any]) -> list[str]:
    """Format a shader's properties."""
    size = " x ".join(map(str, row["workgroup"]))
    needs = f", needs {' '.join(row['needs'])}" if row["needs"] else ""
    lines = [f"{row['name']}: {row['spirv_bytes']} bytes of SPIR-V, workgroups of {size}{needs}"]
    if "error" in row:
        lines.append(f"  refused: {row['error']}")
    if "common" in row:
        facts = {"subgroups of": row["subgroup"], **row["common"]}
        lines.append("  " + ", ".join(f"{name} {n}" for name, n in facts.items()))
    lines += row.get("isa", "").splitlines()
    return lines


# --- vkchi explain --------------------------------------------------------------------------------

EXPLAIN_STATUS = """exit status: 0 success; 1 the kernel is rejected, or the file fails;
2 wrong command line; 130 interrupted"""


def configure_explain(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXPLAIN_STATUS
    parser.add_argument("what", metavar="FILE.py:KERNEL", help="FILE.py:kernel or :obj.method")
    parser.add_argument("--device", default="", help="a device here")
    add_values(parser)
    parser.set_defaults(run=explain)


def explain(given: argparse.Namespace) -> int:
    """Print how the kernel that the command line names would run; return SUCCESS.

    The file is imported as by `vkchi compile`: launches are dropped. Raises WrongCommandLine and
    VkchiError.
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


# --- sample arguments -----------------------------------------------------------------------------

ARRAY = re.compile(r"([a-z]+\d+)((?:x\d+)*)\[([^\]]*)\]")
MOST_INNER = 2  # axes of an element: 2 for a matrix
EXTENT = 64  # default extent; code does not depend on it


def sample_argument(
    parameter: Parameter, given: Mapping[str, str], names: Mapping[str, Any]
) -> Any:
    """Return an argument for a parameter: from the text in `given`, else from its annotation.

    An annotation gives 1, a tensor of ones, or a new array with axes of length EXTENT on the
    current device. `names` are the globals of the kernel's file. Raises ArgumentError if the type
    is unknown.
    """
    if parameter.name in given:
        return read_argument(given[parameter.name], names)
    if isinstance(parameter, ScalarParameter):
        return 1.0 if parameter.type.kind == "f" else 1
    if isinstance(parameter, TensorParameter):
        return np.ones(shape_of(parameter.type)).tolist()
    if isinstance(parameter, ArrayParameter):
        annotation = parameter.annotation
        if annotation.dtype is not None and annotation.ndim is not None:
            return make_array(annotation.dtype, (EXTENT,) * annotation.ndim)
    name = parameter.name
    raise ArgumentError(
        f"nothing says what `{name}` is: --arg {name}=f32[64,64], {name}=5 or {name}=a_global"
    )


def read_argument(text: str, names: Mapping[str, Any]) -> Any:
    """Parse an argument: an array type with extents, a literal, or a dotted name in the file.

    An extent `?` becomes EXTENT. Raises ArgumentError for other text.
    """
    found = ARRAY.fullmatch(text.replace(" ", ""))
    if found and found[1] in SCALARS:
        inner = tuple(int(n) for n in found[2].split("x")[1:])
        extents = found[3].split(",")
        if len(inner) > MOST_INNER or not all(n in ("?", "") or n.isdecimal() for n in extents):
            raise ArgumentError(f"{text!r} is no array: f32[64,64], f32x3[9], f32x3x3[?]")
        dtype = with_shape(SCALARS[found[1]], inner)
        return make_array(dtype, tuple(EXTENT if n in ("?", "") else int(n) for n in extents))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return find_name(text, names)


def find_name(path: str, names: Mapping[str, Any]) -> Any:
    """Return the value of a dotted name, whose first part is in `names`. Raises ArgumentError."""
    first, *rest = path.split(".")
    if first not in names:
        kernels = [name for name, value in names.items() if isinstance(value, Kernel)]
        listed = f"; its kernels are {', '.join(kernels)}" if kernels else ""
        raise ArgumentError(f"the file has nothing called {first!r}{listed}")
    found = names[first]
    for name in rest:
        if not hasattr(found, name):
            raise ArgumentError(f"{path}: there is no {name!r}")
        found = getattr(found, name)
    return found


# --- devices that record shaders in place of running them ----------------------------------------


class ShaderRecord:
    """Recorded shaders by their SPIR-V words, in order. `device`: the last one opened, or None."""

    def __init__(self, described: DeviceDescription | None) -> None:
        self.described = described
        self.shaders: dict[bytes, Shader] = {}
        self.device: NotingDevice | None = None


class NotingPipelines(Pipelines):
    """Pipelines that record shaders in `noted`; `make` compiles none."""

    def __init__(self, logical: Logical, noted: ShaderRecord) -> None:
        super().__init__(logical)
        self._noted = noted

    def make(self, shader: Shader, subgroup_size: int) -> Pipeline:
        """Record the shader, and return a pipeline that cannot run."""
        self._noted.shaders.setdefault(shader.words, shader)
        return Pipeline(shader, [None], None)


class NotingDevice(Device):
    """A device that drops dispatches; its memory, fills and copies work."""

    noted: ShaderRecord

    def __init__(
        self, instance: Instance, physical: Physical, info: DeviceInfo, *, staged: bool
    ) -> None:
        super().__init__(instance, physical, info, staged=staged)
        described = self.noted.described
        self.noted.device = self
        self.pipelines: Pipelines = NotingPipelines(self._logical, self.noted)
        if described is not None:
            self.caps = described.caps
            self.info = info._replace(name=described.name, kind="other")

    def record(self, pipeline: Runnable, *rest: Any) -> None:
        """Drop the dispatch."""
        self.require_open()

    def sequence(
        self, commands: list[Command], like: CommandSequence | None = None
    ) -> CommandSequence:
        """Return an empty sequence."""
        return super().sequence([])

    def execute(self, sequence: CommandSequence) -> None:
        """Drop the sequence."""
        self.require_open()


@contextmanager
def recording_shaders(described: DeviceDescription | None, select: str) -> Iterator[ShaderRecord]:
    """Context manager in which devices opened by `ti.init` record shaders and drop dispatches.

    Their capabilities are those of `described`, or of the present device that `select` names.
    Replaces `vkchi.device.open_device` meanwhile.
    """
    noted = ShaderRecord(described)
    own = type("NotingDevice", (NotingDevice,), {"noted": noted})
    names = vars(sys.modules["vkchi.device"])  # `vkchi.device` itself is a function
    before: Callable[..., Device] = names["open_device"]

    def open_noting(*_: Any, **others: Any) -> Device:
        return before("any", select or None, staged=bool(others.get("staged")), opened_as=own)

    names["open_device"] = open_noting
    try:
        yield noted
    finally:
        names["open_device"] = before

"""`vkchi cache`: what the cache of compiled kernels holds, and why something is not in it.

Owns: the verbs and how they show entries. Exit status: 0, 1 where something is damaged or not
found, 2 for a wrong command line. Must not know: the compiler; only `show` and `verify` read
entries whole, and load what that needs.

    $ vkchi cache ls --sort hits
    $ vkchi cache why program.py:step
"""

from __future__ import annotations

import difflib
import fnmatch
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from vkchi.cache.folder import find_folder
from vkchi.cache.store import (
    USUAL,
    Damaged,
    Entry,
    Limits,
    Store,
    is_key,
    pack_entry,
    read_entry,
    unpack_entry,
)

if TYPE_CHECKING:
    from vkchi.target.artifact import Artifact

WIDE = 1000  # columns, where nobody looks: lines are not broken
SHORT = 12  # characters of a key that are shown
SPIRV_VAL = ("spirv-val", "--target-env", "vulkan1.3", "--scalar-block-layout", "-")
NOT_FOUND = 1
SORTS: dict[str, Callable[[Entry], Any]] = {
    "name": lambda e: (e.header.get("name", ""), e.key),
    "size": lambda e: -e.size_bytes,
    "hits": lambda e: -e.hits,
    "age": lambda e: -e.written,
    "used": lambda e: -e.used,
}

COLUMNS = ("key", "kind", "kernel", "size", "hits", "age", "place", "signature")

app = typer.Typer(help="Compiled kernels that last.", no_args_is_help=True, add_completion=False)


class Shown:
    """Where output goes, and which folder is looked at: set by the options before the verb."""

    console = Console()
    store = Store("")


def main(argv: Sequence[str]) -> int:
    """Run one verb; the exit status."""
    try:
        app(args=list(argv), prog_name="vkchi cache")
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    return 0


@app.callback()
def options(
    folder: Annotated[str, typer.Option(help="The folder, if not the usual one.")] = "",
    color: Annotated[bool, typer.Option(help="Colours on a terminal.")] = True,
) -> None:
    """Compiled kernels that last."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    Shown.console = Console(
        no_color=not color, width=None if is_shown else WIDE, highlight=False, file=sys.stdout,
        color_system="auto" if color and is_shown else None,
    )  # fmt: skip
    Shown.store = Store(find_folder(folder or None))


# --- looking -------------------------------------------------------------------------------------


@app.command()
def ls(
    name: Annotated[str, typer.Argument(help="Kernels of this name; * and ? stand for any.")] = "*",
    kind: Annotated[str, typer.Option(help="`kernel`, or `shaders`.")] = "",
    sort: Annotated[str, typer.Option(help=f"By {', '.join(SORTS)}.")] = "name",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List entries."""
    if sort not in SORTS:
        raise typer.BadParameter(f"it is one of {', '.join(SORTS)}", param_hint="--sort")
    found = [
        e
        for e in Shown.store.entries()
        if fnmatch.fnmatchcase(str(e.header.get("name", "")), name)
        and (not kind or e.header.get("kind") == kind)
    ]
    found.sort(key=SORTS[sort])
    if as_json:
        print(json.dumps([as_row(e) for e in found], indent=1))
        return
    rows = [COLUMNS, *map(row_of, found)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for k, row in enumerate(rows):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
        if k == 0 and Shown.console.is_terminal:
            Shown.console.print(line, style="bold", soft_wrap=True)
        else:  # rich would take a second for a thousand lines
            print(line)


@app.command()
def show(key: str) -> None:
    """Show an entry: what it is of, its key's parts, IR and SPIR-V."""
    found = entry_of(key)
    body = read_body(found)
    for name, value in found.header.items():
        if name not in ("parts", "key"):
            say(f"{name:12} {value}")
    say(f"{'key':12} {found.key}")
    say(f"{'hits':12} {found.hits}")
    for name, value in parts_of(found).items():
        say(f"  {name} = {value}")
    made = artifact_in(body)
    if made.ir is not None:
        say(f"\n{made.ir.text}")
    from vkchi.spirv.disasm import disassemble

    for dispatch in made.dispatches:
        shader = dispatch.shader
        say(f"; {shader.name}: {len(shader.words)} bytes, {shader.grid}")
        say(disassemble(shader.words))


@app.command()
def why(
    what: Annotated[str, typer.Argument(help="A key, or FILE.py:kernel.")],
    other: Annotated[str, typer.Argument(help="Another key.")] = "",
) -> None:
    """Say which parts of the keys of two entries differ: of one that was found, and one that was
    not. Of a kernel: of its newest entry and of each before it."""
    if other:
        tell_difference(entry_of(what), entry_of(other))
        return
    if not what.rpartition(":")[0]:
        raise typer.BadParameter("two keys, or FILE.py:kernel")
    newest, *older = entries_at(what)
    say(f"{newest.key[:SHORT]} of {in_time(time.time() - newest.written)} ago, {newest.hits} hits")
    if not older:
        say("it is the only entry of that kernel: nothing was there before")
    for entry in older:
        tell_difference(entry, newest)


@app.command()
def diff(key: str, other: str) -> None:
    """Compare the IR of two entries, line by line."""
    texts = []
    for entry in (entry_of(key), entry_of(other)):
        made = artifact_in(read_body(entry))
        texts.append((entry.key[:SHORT], made.ir.text.splitlines() if made.ir else []))
    (a, old), (b, new) = texts
    for line in difflib.unified_diff(old, new, a, b, lineterm=""):
        say(line)


@app.command()
def stats() -> None:
    """Say how much there is, and how often it was used."""
    entries = list(Shown.store.entries())
    say(f"folder   {Shown.store.folder}")
    say(f"entries  {len(entries)}")
    say(f"size     {in_units(sum(e.size_bytes for e in entries))}")
    say(f"hits     {sum(e.hits for e in entries)}")
    for kind in sorted({str(e.header.get("kind")) for e in entries}):
        say(f"{kind:8} {sum(e.header.get('kind') == kind for e in entries)}")
    seconds = sum(e.hits * float(e.header.get("seconds", 0)) for e in entries)
    say(f"saved    {seconds:.1f} s of compiling")


# --- keeping house -------------------------------------------------------------------------------


@app.command()
def verify() -> None:
    """Check the sum and the form of every entry, and its SPIR-V with spirv-val if that is there."""
    validates = shutil.which(SPIRV_VAL[0]) is not None
    damaged = 0
    keys = Shown.store.keys()
    for key in keys:
        fault = fault_in(key, validates=validates)
        if fault:
            damaged += 1
            say(f"{key[:SHORT]}  {fault}")
    what = "sums, forms and SPIR-V" if validates else "sums and forms (there is no spirv-val)"
    say(f"{len(keys)} entries, {damaged} damaged: {what} were checked")
    raise typer.Exit(NOT_FOUND if damaged else 0)


@app.command()
def prune(
    most: Annotated[str, typer.Option(help="Bytes that may stay: 50M, 1G.")] = "",
    policy: Annotated[str, typer.Option(help="lru, fifo or version.")] = "lru",
) -> None:
    """Drop what killed writers left, and entries that are too many."""
    if policy not in ("lru", "fifo", "version"):
        raise typer.BadParameter("it is lru, fifo or version", param_hint="--policy")
    if policy == "version":
        from vkchi.cache.version import compiler_version

        Shown.store.version = compiler_version()
    size = bytes_in(most) if most else USUAL.most_bytes
    Shown.store.limits = Limits(policy, size, 0.0)
    say(f"{Shown.store.clean()} entries dropped")


@app.command()
def clear(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Drop all entries."""
    keys = Shown.store.keys()
    if keys and not yes:
        typer.confirm(f"drop {len(keys)} entries in {Shown.store.folder}?", abort=True)
    say(f"{sum(Shown.store.remove(key) for key in keys)} entries dropped")


@app.command()
def pack(
    file: Annotated[str, typer.Argument(help="The archive: a .tar.gz.")],
    names: Annotated[list[str] | None, typer.Argument(help="Kernels; * stands for any.")] = None,
) -> None:
    """Write entries, all or those of kernels of these names, into one archive."""
    count = 0
    with tarfile.open(file, "w:gz") as archive:
        for entry in Shown.store.entries():
            if names and not any(fnmatch.fnmatchcase(entry.header["name"], n) for n in names):
                continue
            try:
                header, body = read_entry(Shown.store.path_of(entry.key))
            except (OSError, Damaged):
                continue
            data = pack_entry(header, body)
            info = tarfile.TarInfo(entry.key)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            count += 1
    say(f"{count} entries written to {file}")


@app.command()
def unpack(file: str) -> None:
    """Take the entries of an archive, those that are whole, into the cache."""
    taken = refused = 0
    try:
        with tarfile.open(file, "r:*") as archive:
            for member in archive:
                is_taken = member.isreg() and is_key(member.name) and take(archive, member)
                taken, refused = taken + is_taken, refused + (not is_taken)
    except (OSError, tarfile.TarError, EOFError) as e:
        say(f"{file} cannot be read: {e}")
        raise typer.Exit(NOT_FOUND) from None
    say(f"{taken} entries taken, {refused} refused")
    raise typer.Exit(NOT_FOUND if refused else 0)


def take(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Put one entry of an archive into the cache; whether it is whole, and under its own key."""
    data = archive.extractfile(member)
    try:
        header, body = unpack_entry(data.read() if data is not None else b"")
    except Damaged:
        return False
    return header.get("key") == member.name and Shown.store.put(member.name, header, body)


# --- entries -------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a line as it is."""
    Shown.console.print(text, markup=False, soft_wrap=True)


def entry_of(key: str) -> Entry:
    """The entry whose key begins so. Ends the command where that is none, or not one alone."""
    keys = Shown.store.keys() if key else []
    found = [k for k in keys if k.startswith(key)]
    if len(found) != 1:
        say(f"{len(found) or 'no'} entries have a key that begins with {key!r}")
        raise typer.Exit(NOT_FOUND)
    try:
        return Shown.store.entry(found[0])
    except (OSError, Damaged) as e:
        say(f"{key}: {e}")
        raise typer.Exit(NOT_FOUND) from None


def entries_at(what: str) -> list[Entry]:
    """The entries of `FILE.py:kernel`, the newest first. Ends the command where there is none."""
    file, _, name = what.rpartition(":")
    found = [
        e
        for e in Shown.store.entries()
        if e.header.get("kind") == "kernel"
        and str(e.header.get("name", "")).rpartition(".")[2] == name.rpartition(".")[2]
        and is_file(str(e.header.get("place", "")).rpartition(":")[0], file)
    ]
    if not found:
        say(
            f"the cache has no kernel {name} of {file}: see `vkchi cache ls`; a kernel that "
            "depends on what has no digest (docs/cache.md) has only its shaders there"
        )
        raise typer.Exit(NOT_FOUND)
    return sorted(found, key=lambda e: -e.written)


def is_file(path: str, wanted: str) -> bool:
    """Whether a path is the file that is meant: the whole of it, or its last parts."""
    return path == os.path.abspath(wanted) or path.endswith(os.sep + wanted.lstrip("./"))


def read_body(entry: Entry) -> bytes:
    """An entry's body. Ends the command where it is damaged."""
    try:
        return read_entry(Shown.store.path_of(entry.key))[1]
    except (OSError, Damaged) as e:
        say(f"{entry.key[:SHORT]} is damaged: {e}")
        raise typer.Exit(NOT_FOUND) from None


def artifact_in(body: bytes) -> Artifact:
    """The artifact of a body, be it a kernel's or that of shaders. Raises Malformed."""
    from vkchi.cache.codec import Malformed, decode
    from vkchi.target.artifact import Artifact

    found = decode(body)
    found = found[0] if type(found) is tuple and found else found
    if not isinstance(found, Artifact):
        raise Malformed("no artifact")
    return found


def fault_in(key: str, *, validates: bool) -> str:
    """What is wrong with an entry; empty if nothing."""
    from vkchi.cache.codec import Malformed

    try:
        header, body = read_entry(Shown.store.path_of(key))
        if header.get("key") != key:
            return "it is another entry under its name"
        made = artifact_in(body)
    except (OSError, Damaged, Malformed) as e:
        return str(e)
    for dispatch in made.dispatches if validates else ():
        words = dispatch.shader.words
        done = subprocess.run(SPIRV_VAL, input=words, capture_output=True, check=False)
        if done.returncode:
            return f"spirv-val: {(done.stdout + done.stderr).decode(errors='replace').strip()}"
    return ""


def parts_of(entry: Entry) -> dict[str, str]:
    """What the key is made of."""
    found = entry.header.get("parts", {})
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def tell_difference(old: Entry, new: Entry) -> None:
    """Say which parts of two keys differ."""
    a, b = parts_of(old), parts_of(new)
    age = in_time(time.time() - old.written)
    say(f"{old.key[:SHORT]} of {age} ago, and {new.key[:SHORT]}:")
    differing = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    for name in differing:
        before, after = a.get(name, "(not there)"), b.get(name, "(not there)")
        say(f"  {name}: {before[:60]} -> {after[:60]}")
    if not differing:
        say("  nothing differs")


def row_of(entry: Entry) -> tuple[str, ...]:
    """An entry for the table."""
    head = entry.header
    texts = (str(head.get(name) or "") for name in ("kind", "name", "place", "signature"))
    kind, name, place, signature = texts
    numbers = (in_units(entry.size_bytes), str(entry.hits), in_time(time.time() - entry.written))
    return (entry.key[:SHORT], kind, name, *numbers, place, signature)


def as_row(entry: Entry) -> dict[str, Any]:
    """An entry for `--json`."""
    own = {"key": entry.key, "size_bytes": entry.size_bytes, "hits": entry.hits}
    times = {"written": entry.written, "used": entry.used}
    return {**entry.header, **own, **times}


def in_units(size_bytes: int) -> str:
    """A size for people."""
    size, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= 1024 and unit != "GiB":
        size, unit = size / 1024, next(units)
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def in_time(seconds: float) -> str:
    """A time for people."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def bytes_in(text: str) -> int:
    """The bytes that `50M` says."""
    factor = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    number = text if factor is None else text[:-1]
    if not number.isdigit():
        raise typer.BadParameter(f"{text!r} is no size: 50M, 1G", param_hint="--most")
    return int(number) << (factor or 0)

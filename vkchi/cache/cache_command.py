"""`vkchi cache`: inspect and manage the disk cache of compiled kernels.

Exit status: 0 success; 1 an entry is damaged or not found, or a file cannot be read or written; 2 a
usage error.

    $ vkchi cache ls --sort hits
    $ vkchi cache why program.py:step
"""

from __future__ import annotations

import difflib
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vkchi.cache import archives, listing, lookup
from vkchi.cache.folder import find_folder
from vkchi.cache.listing import SHORT, in_time, in_units, printable
from vkchi.cache.lookup import ANSWERS, SPIRV_VAL, WITHOUT_TEXT, Missing
from vkchi.cache.store import USUAL, CacheEntry, CacheStore, Damaged, Limits

if TYPE_CHECKING:
    from vkchi.cache.source_links import Linked, Listing

WIDE = 1000  # columns, if stdout is not a terminal: no line breaks
ROOM = 150  # columns for three listings side by side
NOT_FOUND = 1
COLOURS = ("--color", "--no-color")
app = typer.Typer(help="Compiled kernels that last.", no_args_is_help=True, add_completion=False)


class OutputSettings:
    """Output console and cache folder, set by the options before the command."""

    console = Console()
    store = CacheStore("")


def main(argv: Sequence[str]) -> int:
    """Run one command and return the exit status."""
    words = sorted(argv, key=lambda word: word not in COLOURS)  # they may follow the command too
    try:
        app(args=words, prog_name="vkchi cache")
    except Missing as e:
        say(str(e))
        return NOT_FOUND
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    return 0


@app.callback()
def options(
    folder: Annotated[str, typer.Option(help="The folder, if not the usual one.")] = "",
    color: Annotated[bool, typer.Option(help="Colours on a terminal.")] = True,
) -> None:
    """Inspect and manage the disk cache of compiled kernels."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    OutputSettings.console = Console(
        no_color=not color, width=None if is_shown else WIDE, highlight=False, file=sys.stdout,
        color_system="auto" if color and is_shown else None,
    )  # fmt: skip
    OutputSettings.store = CacheStore(find_folder(folder or None))


# --- inspection ----------------------------------------------------------------------------------


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def ls(context: typer.Context) -> None:
    """List entries: [NAME] --kind --device --sort --json. See `ls --help`."""
    raise typer.Exit(
        listing.main(["--folder", OutputSettings.store.root, listing.VERB, *context.args])
    )


@app.command()
def show(
    key: str,
    device: Annotated[str, typer.Option(help="Whose driver is asked: see docs/compile.md.")] = "",
    isa: Annotated[bool, typer.Option(help="Show the driver's machine code.")] = False,
) -> None:
    """Show an entry: header, parts of the key, driver statistics, source, IR and SPIR-V."""
    found = lookup.by_key(OutputSettings.store, key)
    body = lookup.body_of(OutputSettings.store, found)
    for name, value in found.header.items():
        if name not in ("parts", "key", "driver"):
            say(f"{name:12} {value}")
    say(f"{'key':12} {found.key}")
    say(f"{'hits':12} {found.hits}")
    for name, value in lookup.parts_of(found).items():
        say(f"  {name} = {value}")
    if found.header.get("kind") == ANSWERS:
        for line in lookup.answers_of(found, body):
            say(line)
    if found.header.get("kind") in WITHOUT_TEXT:
        return
    tell_driver(found, body, device, with_code=isa)
    show_texts(lookup.linked_of(found, body))


def show_texts(linked: Linked) -> None:
    """Print source, IR and SPIR-V: side by side on a wide terminal, else one after the other."""
    columns = [
        ("source", [line for part in linked.sources for line in titled(part)]),
        ("IR", [line.text for line in linked.ir]),
        ("SPIR-V", [line for part in linked.shaders for line in titled(part)]),
    ]
    if OutputSettings.console.is_terminal and OutputSettings.console.width >= ROOM:
        from rich.table import Table
        from rich.text import Text

        table = Table(*[title for title, _ in columns], box=None)
        table.add_row(
            *[Text(printable("\n".join(lines), "\n\t"), no_wrap=True) for _, lines in columns]
        )
        OutputSettings.console.print(table)
        return
    for title, lines in columns:
        say(f"\n--- {title}")
        for line in lines:
            say(line)


def titled(part: Listing) -> list[str]:
    """Return the lines of a listing, after its title."""
    return [f"; {part.title}", *(line.text for line in part.lines)]


def tell_driver(entry: CacheEntry, body: bytes, device: str, *, with_code: bool) -> None:
    """Print driver statistics of an entry's shaders, or the reason for their absence."""
    from vkchi.cache.driver_report import query_driver
    from vkchi.errors import VkchiError

    made = lookup.artifact_of(entry, body)
    try:
        report = query_driver(OutputSettings.store, entry.key, entry.header, made, device)
    except VkchiError as e:
        say(f"driver       {e}")
        return
    say(f"driver       {report.driver or report.why}")
    for dispatch, outcome in zip(made.dispatches, report.outcomes):
        say(f"; {dispatch.shader.name}: {len(dispatch.shader.words)} bytes, {dispatch.shader.grid}")
        for executable in outcome.executables:
            for name, value in executable.statistics.items():
                say(f"  {name} = {value}")
            if with_code:
                say(executable.machine_code())
        if outcome.error:
            say(f"  refused: {outcome.error}")


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="Kernels of this name; * and ? stand for any.")] = "*",
    html: Annotated[str, typer.Option(help="The page that is written.")] = "cache.html",
    most: Annotated[int, typer.Option(help="Entries that are shown whole: the newest.")] = 50,
    device: Annotated[str, typer.Option(help="Whose driver is asked, in `show`'s way.")] = "",
    timings: Annotated[str, typer.Option(help="A trace of ti.profiler.export_trace.")] = "",
) -> None:
    """Write an HTML page: kernels, timings, and source, IR and SPIR-V, linked by line."""
    from vkchi.cache import report as reports

    try:
        measured = reports.read_trace(timings) if timings else {}
    except (OSError, ValueError) as e:
        raise typer.BadParameter(f"{timings}: {e}", param_hint="--timings") from None
    found, details, odd = lookup.newest(OutputSettings.store, name), [], 0
    for entry in found[:most]:
        try:
            body = lookup.body_of(OutputSettings.store, entry)
            if device:
                tell_driver(entry, body, device, with_code=False)
            details.append((entry, lookup.linked_of(entry, body)))
        except Missing as e:  # continue with the others
            odd += not isinstance(e, lookup.OtherVersion)
            say(str(e))
    if device:  # read the entries again: they have the statistics
        again = {entry.key: entry for entry in lookup.newest(OutputSettings.store, name)}
        found = [again.get(entry.key, entry) for entry in found]
    title = f"Compiled kernels in {OutputSettings.store.root}"
    text = reports.page(found, details, measured, title)
    with writing(html), open(html, "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(text)
    say(f"{len(found)} entries, {len(details)} of them whole, written to {html}")
    raise typer.Exit(NOT_FOUND if odd else 0)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Context manager for writing a file. Raises Missing if the file cannot be written."""
    try:
        yield
    except OSError as e:
        raise Missing(f"{path} cannot be written: {e.strerror}") from None


@app.command()
def why(
    what: Annotated[str, typer.Argument(help="A key, or FILE.py:kernel.")],
    other: Annotated[str, typer.Argument(help="Another key.")] = "",
) -> None:
    """Compare the keys of two entries: print the parts that differ.

    For FILE.py:kernel, compare the kernel's newest entry with each older one.
    """
    if other:
        tell_difference(
            lookup.by_key(OutputSettings.store, what), lookup.by_key(OutputSettings.store, other)
        )
        return
    if not what.rpartition(":")[0]:
        raise typer.BadParameter("two keys, or FILE.py:kernel")
    newest, *older = lookup.by_kernel(OutputSettings.store, what)
    say(f"{newest.key[:SHORT]} of {in_time(time.time() - newest.written)} ago, {newest.hits} hits")
    if not older:
        say("it is the only entry of that kernel: nothing was there before")
    for entry in older:
        tell_difference(entry, newest)


@app.command()
def diff(key: str, other: str) -> None:
    """Compare the IR of two entries, line by line."""
    texts = []
    for entry in (lookup.by_key(OutputSettings.store, k) for k in (key, other)):
        if entry.header.get("kind") in WITHOUT_TEXT:
            held = WITHOUT_TEXT[entry.header["kind"]]
            raise Missing(f"{entry.key[:SHORT]} holds {held}, and no IR")
        made = lookup.artifact_of(entry, lookup.body_of(OutputSettings.store, entry))
        texts.append((entry.key[:SHORT], made.ir.text.splitlines() if made.ir else []))
    (a, old), (b, new) = texts
    for line in difflib.unified_diff(old, new, a, b, lineterm=""):
        say(line)


@app.command()
def stats() -> None:
    """Print the number of entries, their size, and how often they were used."""
    entries = list(OutputSettings.store.entries())
    say(f"folder   {OutputSettings.store.folder}")
    say(f"entries  {len(entries)}")
    say(f"size     {in_units(sum(e.size_bytes for e in entries))}")
    say(f"hits     {sum(e.hits for e in entries)}")
    for kind in sorted({str(e.header.get("kind")) for e in entries}):
        say(f"{kind:8} {sum(e.header.get('kind') == kind for e in entries)}")
    seconds = sum(e.hits * float(e.header.get("seconds", 0)) for e in entries)
    say(f"saved    {seconds:.1f} s of compiling")


# --- maintenance ---------------------------------------------------------------------------------


@app.command()
def verify() -> None:
    """Check every entry's checksum and format, and its SPIR-V if spirv-val is installed."""
    validates = shutil.which(SPIRV_VAL[0]) is not None
    damaged = others = 0
    keys = OutputSettings.store.keys()
    for key in keys:
        try:
            fault = lookup.fault_in(OutputSettings.store, key, validates=validates)
        except lookup.OtherVersion:
            others += 1
            continue
        if fault:
            damaged += 1
            say(f"{key[:SHORT]}  {fault}")
    if others:
        say(f"{others} are of other versions of vkchi, and only their sums were checked")
    what = "sums, forms and SPIR-V" if validates else "sums and forms (there is no spirv-val)"
    say(f"{len(keys)} entries, {damaged} damaged: {what} were checked")
    raise typer.Exit(NOT_FOUND if damaged else 0)


@app.command()
def prune(
    most: Annotated[str, typer.Option(help="Bytes that may stay: 50M, 1G.")] = "",
    policy: Annotated[str, typer.Option(help="lru, fifo or version.")] = "lru",
) -> None:
    """Delete leftover temporary files, and entries beyond the limits."""
    if policy not in ("lru", "fifo", "version"):
        raise typer.BadParameter("it is lru, fifo or version", param_hint="--policy")
    if policy == "version":
        from vkchi.cache.version import compiler_version

        OutputSettings.store.version = compiler_version()
    size = bytes_in(most) if most else USUAL.most_bytes
    OutputSettings.store.limits = Limits(policy, size, 0.0)
    say(f"{OutputSettings.store.clean()} entries dropped")


@app.command()
def clear(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Delete all entries."""
    keys = OutputSettings.store.keys()
    if keys and not yes:
        typer.confirm(f"drop {len(keys)} entries in {OutputSettings.store.folder}?", abort=True)
    say(f"{sum(OutputSettings.store.remove(key) for key in keys)} entries dropped")


@app.command()
def pack(
    file: Annotated[str, typer.Argument(help="The archive: a .tar.gz.")],
    names: Annotated[list[str] | None, typer.Argument(help="Kernels; * stands for any.")] = None,
) -> None:
    """Export entries to an archive: all, or those of the named kernels."""
    with writing(file):
        count = archives.pack(OutputSettings.store, file, names or ["*"])
    say(f"{count} entries written to {file}")


@app.command()
def unpack(file: str) -> None:
    """Import the intact entries of an archive into the cache."""
    try:
        taken, refused = archives.unpack(OutputSettings.store, file)
    except (OSError, tarfile.TarError, EOFError, Damaged) as e:
        raise Missing(f"{file} cannot be read: {e}") from None
    say(f"{taken} entries taken, {refused} refused")
    raise typer.Exit(NOT_FOUND if refused else 0)


# --- output --------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print text without markup; control characters but newlines and tabs are escaped."""
    OutputSettings.console.print(printable(text, "\n\t"), markup=False, soft_wrap=True)


def tell_difference(old: CacheEntry, new: CacheEntry) -> None:
    """Print the differing parts of two keys."""
    age = in_time(time.time() - old.written)
    say(f"{old.key[:SHORT]} of {age} ago, and {new.key[:SHORT]}:")
    found = list(lookup.differing(old, new))
    for name, before, after in found:
        say(f"  {name}: {before[:60]} -> {after[:60]}")
    if not found:
        say("  nothing differs")


def bytes_in(text: str) -> int:
    """Return the bytes in a size such as `50M`. K, M and G are powers of 1024.

    Raises BadParameter.
    """
    factor = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    number = text if factor is None else text[:-1]
    if not number.isdigit():
        raise typer.BadParameter(f"{text!r} is no size: 50M, 1G", param_hint="--most")
    return int(number) << (factor or 0)

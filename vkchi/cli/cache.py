"""`vkchi cache`: inspect and manage the disk cache of compiled kernels.

Exit status: 0 success; 1 an entry is damaged or not found, or a file cannot be read or written; 2 a
usage error.

    $ vkchi cache ls --sort hits
    $ vkchi cache why program.py:step
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vkchi import platform
from vkchi.cache.inspection import lookup
from vkchi.cache.inspection.lookup import (
    ANSWERS,
    SHORT,
    SPIRV_VAL,
    WITHOUT_TEXT,
    Missing,
    in_time,
    in_units,
    printable,
)
from vkchi.cache.store import USUAL, CacheEntry, CacheStore, Damaged, Limits, find_folder
from vkchi.cli.tree import FAILURE, SUCCESS, WrongCommandLine

if TYPE_CHECKING:
    from vkchi.cache.inspection.source_links import Linked, Listing

ROOM = 150  # columns for three listings side by side
GAP = 2  # columns between listings
POLICIES = ("lru", "fifo", "version")
EXIT_STATUS = """exit status: 0 success; 1 an entry is damaged or not found, a file cannot be read
or written, or `clear` was declined; 2 wrong command line; 130 interrupted"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands."""
    parser.epilog = EXIT_STATUS
    parser.add_argument("--folder", default="", help="the folder, if not the usual one")
    parser.add_argument(
        "--color", action=argparse.BooleanOptionalAction, default=True, help="colours on a terminal"
    )


def store_of(given: argparse.Namespace) -> CacheStore:
    """Return the cache that the options select."""
    return CacheStore(find_folder(given.folder or None))


# --- inspection ----------------------------------------------------------------------------------


def configure_ls(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    parser.add_argument("--kind", default="", help="kernel, shaders, answers or pipelines")
    parser.add_argument("--device", default="", help="of devices with this in their names")
    parser.add_argument(
        "--sort", default="name", choices=list(lookup.SORTS), help="order of the entries"
    )
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON array")
    parser.set_defaults(run=ls)


def add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default="*", help="kernels; * and ? are wildcards (default: all)"
    )


def ls(given: argparse.Namespace) -> int:
    store = store_of(given)
    found = list(lookup.by_name(store, given.name, kind=given.kind, device=given.device))
    found.sort(key=lookup.SORTS[given.sort])
    if given.as_json:
        print(json.dumps([lookup.as_row(e) for e in found], indent=1))
    else:
        lookup.print_table(found, is_bold=given.color and is_terminal())
    return SUCCESS


def is_terminal() -> bool:
    """True if stdout is a terminal that takes colours, and `NO_COLOR` is not set."""
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not is_plain and platform.takes_escapes(sys.stdout)


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", help="a key, or its first digits")
    parser.add_argument("--device", default="", help="whose driver is asked: see docs/compile.md")
    parser.add_argument("--isa", action="store_true", help="show the driver's machine code")
    parser.set_defaults(run=show)


def show(given: argparse.Namespace) -> int:
    """Print an entry: header, parts of the key, driver statistics, source, IR and SPIR-V.

    For kinds in WITHOUT_TEXT, only header and key are printed, and the answers of kind ANSWERS.
    """
    store = store_of(given)
    found = lookup.by_key(store, given.key)
    body = lookup.body_of(store, found)
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
        return SUCCESS
    tell_driver(store, found, body, given.device, with_code=given.isa)
    show_texts(lookup.linked_of(found, body), terminal_width())
    return SUCCESS


def terminal_width() -> int:
    """Return the columns of the terminal; 0 if stdout is no terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return 0
    import shutil  # slow: imports compression modules

    return shutil.get_terminal_size().columns


def show_texts(linked: Linked, width: int) -> None:
    """Print source, IR and SPIR-V: side by side on a wide terminal, else one after the other."""
    columns = {
        "source": [line for part in linked.sources for line in titled(part)],
        "IR": [line.text for line in linked.ir],
        "SPIR-V": [line for part in linked.shaders for line in titled(part)],
    }
    if width >= ROOM:
        room = width // len(columns) - GAP
        for k in range(max(map(len, columns.values())) + 1):
            cells = [[title, *lines][k : k + 1] for title, lines in columns.items()]
            say((" " * GAP).join(fitted(cell[0] if cell else "", room) for cell in cells).rstrip())
        return
    for title, lines in columns.items():
        say(f"\n--- {title}")
        for line in lines:
            say(line)


def fitted(text: str, columns: int) -> str:
    """Return the text with exactly this many columns; a longer one ends in an ellipsis."""
    text = printable(text.expandtabs())
    return text.ljust(columns) if len(text) <= columns else text[: columns - 1] + "…"


def titled(part: Listing) -> list[str]:
    return [f"; {part.title}", *(line.text for line in part.lines)]


def tell_driver(
    store: CacheStore, entry: CacheEntry, body: bytes, device: str, *, with_code: bool
) -> None:
    """Print driver statistics of an entry's shaders, or the reason for their absence."""
    from vkchi.cache.inspection.driver_report import query_driver
    from vkchi.errors import VkchiError

    made = lookup.artifact_of(entry, body)
    try:
        report = query_driver(store, entry.key, entry.header, made, device)
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


def configure_report(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    parser.add_argument("--html", default="cache.html", help="the page that is written")
    parser.add_argument(
        "--most", type=int, default=50, help="number of entries that are shown whole: the newest"
    )
    parser.add_argument("--device", default="", help="whose driver is asked, as for `show`")
    parser.add_argument("--timings", default="", help="a trace of ti.profiler.export_trace")
    parser.set_defaults(run=report)


def report(given: argparse.Namespace) -> int:
    """Write an HTML page: matching kernels, timings, and linked source, IR and SPIR-V of the
    newest.

    With `--device`, driver statistics of the newest are printed and stored in their entries, or the
    reason why there are none is printed. Returns FAILURE if one of the newest is damaged. Raises
    WrongCommandLine for an unreadable file of timings, Missing if the page cannot be written.
    """
    from vkchi.cache.inspection import report as reports

    try:
        measured = reports.read_trace(given.timings) if given.timings else {}
    except (OSError, ValueError) as e:
        raise WrongCommandLine(f"argument --timings: {given.timings}: {e}") from None
    store = store_of(given)
    found, details, odd = lookup.newest(store, given.name), [], 0
    for entry in found[: given.most]:
        try:
            body = lookup.body_of(store, entry)
            if given.device:
                tell_driver(store, entry, body, given.device, with_code=False)
            details.append((entry, lookup.linked_of(entry, body)))
        except Missing as e:  # continue with the others
            odd += not isinstance(e, lookup.OtherVersion)
            say(str(e))
    if given.device:  # read the entries again: they have the statistics
        again = {entry.key: entry for entry in lookup.newest(store, given.name)}
        found = [again.get(entry.key, entry) for entry in found]
    text = reports.page(found, details, measured, f"Compiled kernels in {store.root}")
    with (
        writing(given.html),
        open(given.html, "w", encoding="utf-8", errors="backslashreplace") as out,
    ):
        out.write(text)
    say(f"{len(found)} entries, {len(details)} of them whole, written to {given.html}")
    return FAILURE if odd else SUCCESS


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Context manager for writing a file. Raises Missing if the file cannot be written."""
    try:
        yield
    except OSError as e:
        raise Missing(f"{path} cannot be written: {e.strerror}") from None


def configure_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", help="FILE.py:kernel, to compare its newest entry with older ones")
    parser.add_argument("other", nargs="?", default="", help="a key, if the first word is a key")
    parser.set_defaults(run=why)


def why(given: argparse.Namespace) -> int:
    """Compare the keys of two entries: print the parts that differ.

    For FILE.py:kernel, compare the kernel's newest entry with each older one.
    """
    store = store_of(given)
    if given.other:
        tell_difference(store, lookup.by_key(store, given.what), lookup.by_key(store, given.other))
        return SUCCESS
    if not given.what.rpartition(":")[0]:
        raise WrongCommandLine("name two keys, or FILE.py:kernel")
    newest, *older = lookup.by_kernel(store, given.what)
    say(f"{newest.key[:SHORT]} of {in_time(time.time() - newest.written)} ago, {newest.hits} hits")
    if not older:
        say("it is the only entry of that kernel: nothing was there before")
    for entry in older:
        tell_difference(store, entry, newest)
    return SUCCESS


def configure_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", help="a key, or its first digits")
    parser.add_argument("other", help="another key")
    parser.set_defaults(run=diff)


def diff(given: argparse.Namespace) -> int:
    """Print the differences between the IR of two entries, line by line.

    Raises Missing for entries without IR.
    """
    store, texts = store_of(given), []
    for entry in (lookup.by_key(store, k) for k in (given.key, given.other)):
        if entry.header.get("kind") in WITHOUT_TEXT:
            held = WITHOUT_TEXT[entry.header["kind"]]
            raise Missing(f"{entry.key[:SHORT]} holds {held}, and no IR")
        made = lookup.artifact_of(entry, lookup.body_of(store, entry))
        texts.append((entry.key[:SHORT], made.ir.text.splitlines() if made.ir else []))
    (a, old), (b, new) = texts
    for line in unified(old, new, a, b):
        say(line)
    return SUCCESS


def configure_stats(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=stats)


def stats(given: argparse.Namespace) -> int:
    """Print the number of entries, their size, and how often they were used."""
    store = store_of(given)
    entries = list(store.entries())
    say(f"folder   {store.folder}")
    say(f"entries  {len(entries)}")
    say(f"size     {in_units(sum(e.size_bytes for e in entries))}")
    say(f"hits     {sum(e.hits for e in entries)}")
    for kind in sorted({str(e.header.get("kind")) for e in entries}):
        say(f"{kind:8} {sum(e.header.get('kind') == kind for e in entries)}")
    seconds = sum(e.hits * float(e.header.get("seconds", 0)) for e in entries)
    say(f"saved    {seconds:.1f} s of compiling")
    return SUCCESS


# --- maintenance ---------------------------------------------------------------------------------


def configure_verify(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=verify)


def verify(given: argparse.Namespace) -> int:
    """Check each entry's checksum and format, and its SPIR-V if spirv-val is installed.

    Of entries of other versions of vkchi that this one cannot decode, only the checksum. Prints the
    damaged ones, and returns FAILURE if there are any.
    """
    import shutil  # slow: imports compression modules

    store = store_of(given)
    validates = shutil.which(SPIRV_VAL[0]) is not None
    damaged = others = 0
    keys = store.keys()
    for key in keys:
        try:
            fault = lookup.fault_in(store, key, validates=validates)
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
    return FAILURE if damaged else SUCCESS


def configure_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--most", type=bytes_in, default=USUAL.most_bytes, metavar="SIZE",
        help="bytes that may stay: 50M, 1G",
    )  # fmt: skip
    parser.add_argument("--policy", default="lru", choices=POLICIES, help="entries to delete first")
    parser.set_defaults(run=prune)


def prune(given: argparse.Namespace) -> int:
    """Delete leftover temporary files, and entries beyond the limits of `--policy` and `--most`.

    Prints the number of deleted entries.
    """
    store = store_of(given)
    if given.policy == "version":
        from vkchi.cache.version import compiler_version

        store.version = compiler_version()
    store.limits = Limits(given.policy, given.most, 0.0)
    say(f"{store.clean()} entries dropped")
    return SUCCESS


def bytes_in(text: str) -> int:
    """Return the bytes in a size such as `50M`. K, M and G are powers of 1024.

    Raises ArgumentTypeError.
    """
    factor = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    number = text if factor is None else text[:-1]
    if not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 50M or 1G")
    return int(number) << (factor or 0)


def configure_clear(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.set_defaults(run=clear)


def clear(given: argparse.Namespace) -> int:
    """Delete all entries, after a question on the terminal unless `--yes` is given.

    Returns FAILURE if it is declined.
    """
    store = store_of(given)
    keys = store.keys()
    if keys and not given.yes and not confirms(f"drop {len(keys)} entries in {store.folder}?"):
        print("nothing was deleted", file=sys.stderr)
        return FAILURE
    say(f"{sum(store.remove(key) for key in keys)} entries dropped")
    return SUCCESS


def confirms(question: str) -> bool:
    """Ask on the terminal; True for yes."""
    try:
        return input(f"{printable(question)} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def configure_pack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the archive: a .tar.gz")
    parser.add_argument("names", nargs="*", help="kernels; * and ? are wildcards (default: all)")
    parser.set_defaults(run=pack)


def pack(given: argparse.Namespace) -> int:
    """Export entries to an archive: all, or those of the named kernels."""
    from vkchi.cache import archives

    with writing(given.file):
        count = archives.pack(store_of(given), given.file, given.names or ["*"])
    say(f"{count} entries written to {given.file}")
    return SUCCESS


def configure_unpack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the archive")
    parser.set_defaults(run=unpack)


def unpack(given: argparse.Namespace) -> int:
    """Import the intact entries of an archive into the cache; return FAILURE if some are rejected.

    Raises Missing if the archive cannot be read.
    """
    import tarfile

    from vkchi.cache import archives

    try:
        taken, refused = archives.unpack(store_of(given), given.file)
    except (OSError, tarfile.TarError, EOFError, Damaged) as e:
        raise Missing(f"{printable(f'{given.file} cannot be read: {e}')}") from None
    say(f"{taken} entries taken, {refused} refused")
    return FAILURE if refused else SUCCESS


# --- output --------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print text; control characters but newlines and tabs are escaped."""
    print(printable(text, "\n\t"))


def tell_difference(store: CacheStore, old: CacheEntry, new: CacheEntry) -> None:
    """Print the parts in which two keys differ, with diffs of the sources."""
    age = in_time(time.time() - old.written)
    say(f"{old.key[:SHORT]} of {age} ago, and {new.key[:SHORT]}:")
    found = list(lookup.differing(old, new))
    sources = [lookup.sources_of(store, entry) for entry in (old, new)]
    for name, before, after in found:
        a, b = (of_part.get(name, "").splitlines() for of_part in sources)
        lines = [*unified(a, b, "", "")][2:] if a and b else []
        if lines:
            say("\n".join([f"  {name}:", *(f"    {line}" for line in lines)]))
        else:
            say(f"  {name}: {before[:60]} -> {after[:60]}")
    if not found:
        say("  nothing differs")


def unified(old: Sequence[str], new: Sequence[str], a: str, b: str) -> Iterator[str]:
    from difflib import unified_diff

    return unified_diff(old, new, a, b, lineterm="")

"""Entries of the cache as people ask for them: by the beginning of a key, by kernel, by name.

Owns: which entry is meant, reading one whole, what is wrong with one, what differs between two.
Must not know: the command line; only what reads an entry whole loads what that needs.

    >>> lookup.by_key(store, "3f9")
    Missing: no entries have a key that begins with '3f9'
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from vkchi.cache.listing import SHORT
from vkchi.cache.store import Damaged, Entry, Store, read_entry
from vkchi.cache.version import compiler_version
from vkchi.interrupts.local import local

if TYPE_CHECKING:
    from vkchi.cache.linked import Linked
    from vkchi.target.artifact import Artifact

SPIRV_VAL = ("spirv-val", "--target-env", "vulkan1.3", "--scalar-block-layout", "-")
ANSWERS = "answers"
# Entries without IR of their own, and what they hold.
WITHOUT_TEXT = {"pipelines": "what a driver compiled", ANSWERS: "what was found out of a kernel"}


class Missing(Exception):
    """What was asked for is not there, or cannot be read; the text says which and why."""


class OtherVersion(Missing):
    """An entry of another version of vkchi, whose form this one does not know."""


def unreadable(header: Mapping[str, object], key: str, fault: Exception) -> Missing:
    """The error for an entry that is whole, and of another form."""
    if header.get("version") != compiler_version():
        return OtherVersion(f"{key[:SHORT]} is of another version of vkchi, and in its form")
    return Missing(f"{key[:SHORT]} cannot be read: {fault}")


# --- which ---------------------------------------------------------------------------------------


def by_key(store: Store, key: str) -> Entry:
    """The entry whose key begins so. Raises Missing where that is none, or not one alone."""
    keys = store.keys() if key else []
    found = [k for k in keys if k.startswith(key)]
    if len(found) != 1:
        raise Missing(f"{len(found) or 'no'} entries have a key that begins with {key!r}")
    try:
        return store.entry(found[0])
    except local(OSError, Damaged) as e:
        raise Missing(f"{key}: {e}") from None


def by_kernel(store: Store, what: str) -> list[Entry]:
    """The entries of `FILE.py:kernel`, the newest first. Raises Missing where there is none."""
    file, _, name = what.rpartition(":")
    found = [
        e
        for e in store.entries()
        if e.header.get("kind") == "kernel"
        and str(e.header.get("name", "")).rpartition(".")[2] == name.rpartition(".")[2]
        and is_file(str(e.header.get("place", "")).rpartition(":")[0], file)
    ]
    if not found:
        raise Missing(
            f"the cache has no kernel {name} of {file}: see `vkchi cache ls`; a kernel that "
            "depends on what has no digest (docs/cache.md) has only its shaders there"
        )
    return sorted(found, key=lambda e: -e.written)


def is_file(path: str, wanted: str) -> bool:
    """Whether a path is the file that is meant: the whole of it, or its last parts."""
    return path == os.path.abspath(wanted) or path.endswith(os.sep + wanted.lstrip("./"))


def by_name(store: Store, *names: str) -> Iterator[Entry]:
    """The entries of kernels of one of these names; * and ? stand for any."""
    for entry in store.entries():
        if any(fnmatch.fnmatchcase(str(entry.header.get("name", "")), name) for name in names):
            yield entry


def newest(store: Store, name: str) -> list[Entry]:
    """The entries of kernels of a name, the newest first."""
    found = [e for e in by_name(store, name) if e.header.get("kind") not in WITHOUT_TEXT]
    return sorted(found, key=lambda e: (-e.written, e.key))


# --- whole ---------------------------------------------------------------------------------------


def body_of(store: Store, entry: Entry) -> bytes:
    """An entry's body. Raises Missing where it is damaged."""
    try:
        return read_entry(store.path_of(entry.key))[1]
    except local(OSError, Damaged) as e:
        raise Missing(f"{entry.key[:SHORT]} is damaged: {e}") from None


def artifact_of(entry: Entry, body: bytes) -> Artifact:
    """What was compiled. Raises Missing where the body is malformed."""
    from vkchi.cache.linked import open_body

    try:
        return open_body(entry.header, body)[0]
    except local(ValueError) as e:
        raise unreadable(entry.header, entry.key, e) from None


def answers_of(entry: Entry, body: bytes) -> list[str]:
    """What was found out of a kernel, in lines. Raises Missing where the body is malformed."""
    from vkchi.cache.answers import lines_of

    try:
        return list(lines_of(body))
    except local(ValueError) as e:
        raise unreadable(entry.header, entry.key, e) from None


def artifacts_in(header: Mapping[str, object], body: bytes) -> list[Artifact]:
    """The artifacts of an entry; of pipelines none: those are the driver's. Raises Malformed."""
    if header.get("kind") not in WITHOUT_TEXT:
        from vkchi.cache.linked import open_body

        return [open_body(header, body)[0]]
    if header["kind"] != ANSWERS:
        return []
    from vkchi.cache.answers import artifacts_in

    return artifacts_in(body)


def linked_of(entry: Entry, body: bytes) -> Linked:
    """What an entry holds, linked. Raises Missing where it is malformed."""
    from vkchi.cache.codec import Malformed
    from vkchi.cache.linked import link

    try:
        return link(entry.header, body)
    except local(Malformed, ValueError, LookupError) as e:
        raise unreadable(entry.header, entry.key, e) from None


def fault_in(store: Store, key: str, *, validates: bool) -> str:
    """What is wrong with an entry; empty if nothing. `validates`: its SPIR-V too. Raises
    OtherVersion for a whole entry of which no more can be told."""
    from vkchi.cache.codec import Malformed

    try:
        header, body = read_entry(store.path_of(key))
        if header.get("key") != key:
            return "it is another entry under its name"
    except local(OSError, Damaged) as e:
        return str(e)
    try:
        made = artifacts_in(header, body)
    except Malformed as e:
        error = unreadable(header, key, e)
        if isinstance(error, OtherVersion):
            raise error from None
        return str(e)
    for dispatch in (d for one in made for d in one.dispatches if validates):
        words = dispatch.shader.words
        done = subprocess.run(SPIRV_VAL, input=words, capture_output=True, check=False)
        if done.returncode:
            return f"spirv-val: {(done.stdout + done.stderr).decode(errors='replace').strip()}"
    return ""


# --- parts ---------------------------------------------------------------------------------------


def parts_of(entry: Entry) -> dict[str, str]:
    """What the key is made of."""
    found = entry.header.get("parts", {})
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def differing(old: Entry, new: Entry) -> Iterator[tuple[str, str, str]]:
    """The parts in which two keys differ: the name, the one, the other."""
    a, b = parts_of(old), parts_of(new)
    for name in {**a, **b}:
        if a.get(name) != b.get(name):
            yield name, a.get(name, "(not there)"), b.get(name, "(not there)")

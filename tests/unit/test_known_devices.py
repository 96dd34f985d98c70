"""Modules of known devices: declared capabilities, and accesses of vectors.

`tests/golden/devices` has a text per device: version, capabilities and extensions of all modules,
and the kernels that the device cannot run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.modules import (
    alignment_faults,
    declarations,
    missing_scans,
    movable_exchanges,
    pointer_faults,
)
from tests.unit.programs import kernels_of
from vkchi.compiler import build_artifact
from vkchi.errors import DeviceError, SubgroupWarning
from vkchi.frontend.lowering import Lowered
from vkchi.target.caps import Caps
from vkchi.target.devices import find_described, known_names
from vkchi.target.options import Options

GOLDEN = Path(__file__).parents[1] / "golden"
PROGRAMS = [*sorted((GOLDEN / "frontend").glob("*.py")), GOLDEN / "devices" / "programs.py"]
NARROW = {"Int64", "Int16", "Int8", "Float16", "Float64", "StorageBuffer8BitAccess"}


@cache
def kernels() -> tuple[tuple[str, Lowered], ...]:
    """All kernels, lowered once."""
    found: list[tuple[str, Callable[[], Lowered]]] = [k for p in PROGRAMS for k in kernels_of(p)]
    return tuple((name, make()) for name, make in found)


@cache
def modules_for(caps: Caps) -> tuple[dict[str, list[bytes]], dict[str, str]]:
    """(modules of each kernel, reasons why a device cannot run the others)."""
    made, refused = dict[str, list[bytes]](), dict[str, str]()
    for name, lowered in kernels():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SubgroupWarning)
                artifact = build_artifact(lowered.func, Options(), caps)
        except DeviceError as e:
            refused[name] = re.sub(r"^\S+: ", "", str(e).splitlines()[0])
        else:
            made[name] = [d.shader.words for d in artifact.dispatches]
    return made, refused


def caps_of(name: str) -> Caps:
    found = find_described(name)
    assert found is not None
    return found.caps


def text_of(caps: Caps) -> str:
    """The golden text of a device."""
    made, refused = modules_for(caps)
    found = [declarations(words) for words_of_kernel in made.values() for words in words_of_kernel]
    versions = sorted({f"SPIR-V {d.version[0]}.{d.version[1]}" for d in found})
    capabilities = sorted(frozenset[str]().union(*(d.capabilities for d in found)))
    extensions = sorted(frozenset[str]().union(*(d.extensions for d in found)))
    lacking = [f"{name}: {why}" for name, why in sorted(refused.items())]
    rows = [*versions, *capabilities, *extensions, *(["", *lacking] if lacking else [])]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("name", known_names())
def test_modules_declare_only_listed_capabilities(name: str, bless: bool) -> None:
    path = GOLDEN / "devices" / f"{name}.txt"
    text = text_of(caps_of(name))
    if bless:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_there_is_a_list_of_each_device() -> None:
    assert sorted(p.stem for p in (GOLDEN / "devices").glob("*.txt")) == known_names()
    assert len(kernels()) >= 30


def test_modules_of_the_smallest_device() -> None:
    """No optional type, and all vectors at their natural alignment."""
    made, _ = modules_for(caps_of("smallest"))
    assert len(made) >= 30
    for name, modules in made.items():
        for words in modules:
            assert not declarations(words).capabilities & NARROW, name
            assert alignment_faults(words) == [], name


def test_modules_for_moltenvk() -> None:
    """No cast of an element's pointer, no vector below its natural alignment, no missing scan; all
    subgroup operations stay in place."""
    made, _ = modules_for(caps_of("apple-moltenvk"))
    assert len(made) >= 30
    for name, modules in made.items():
        for words in modules:
            assert pointer_faults(words) == [] and missing_scans(words) == [], name
            assert movable_exchanges(words) == [], name


@pytest.mark.parametrize("name", ["nvidia-ampere", "apple-m1"])
def test_vectors_without_scalar_block_layout(name: str) -> None:
    """Natural alignment only; with the layout, vectors may be at the alignment of a scalar."""
    caps = caps_of(name)
    strict, _ = modules_for(caps._replace(scalar_alignment=False))
    loose, _ = modules_for(caps)
    for kernel, modules in strict.items():
        assert not [fault for words in modules for fault in alignment_faults(words)], kernel
    assert any(alignment_faults(words) for modules in loose.values() for words in modules)


FEATURES = {
    "`f64`": "float64", "`f16`": "float16", "`i64`": "int64", "`i64` atomics": "i64_atomics",
    "`f32` atomic add": "f32_atomic_add", "`f64` atomic add": "f64_atomic_add",
}  # fmt: skip


def test_the_page_on_installation_lists_missing_features() -> None:
    """State per vendor: a row for each described device."""
    page = (GOLDEN.parents[1] / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("\n## State per vendor\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"(?m)^\| `([\w-]+)` \| (.*) \|$", section))
    lacking = {
        name: ", ".join(word for word, key in FEATURES.items() if not getattr(caps_of(name), key))
        for name in known_names()
    }
    assert rows == {name: words or "none" for name, words in lacking.items()}

"""Programs as for MoltenVK: computed pointers, aligned vectors, scans by shuffles.

SPIRV-Cross, with which MoltenVK translates, writes an element's value for a cast of its pointer.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.devices import like_moltenvk
from tests.modules import missing_scans, movable_exchanges, pointer_faults
from vkchi.runtime import current_runtime
from vkchi.vk import physical
from vkchi.vk.pipelines import Pipelines

# Modules of whole programs: all their tests without parameters run again.
MODULES = (
    "test_conformance_programs", "test_quantised_fields", "test_programs",
    "language.test_programs_vectors", "language.test_atomics_targets",
)  # fmt: skip


def programs() -> Iterator[Any]:
    """The tests of MODULES that need no fixture."""
    for name in MODULES:
        module = importlib.import_module(f"tests.e2e.{name}")
        for key, found in vars(module).items():
            if key.startswith("test_") and not inspect.signature(found).parameters:
                yield pytest.param(found, id=f"{name}.{key}")


PROGRAMS = list(programs())


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[bytes, str]]:
    """The modules of the test, compiled as for MoltenVK, with the names of their shaders."""
    found: dict[bytes, str] = {}
    make, read = Pipelines.make, physical.read_physical

    def note(self: Pipelines, shader: Any, size: int) -> Any:
        found[shader.words] = shader.name
        return make(self, shader, size)

    def read_changed(*args: Any) -> physical.Physical:
        row = read(*args)
        return row._replace(caps=like_moltenvk(row.caps))

    monkeypatch.setattr(Pipelines, "make", note)
    monkeypatch.setattr(physical, "read_physical", read_changed)
    device = current_runtime().device
    if not device.caps.int64:
        pytest.skip("MoltenVK has 64-bit integers, and this device has none")
    monkeypatch.setattr(device, "caps", like_moltenvk(device.caps))
    yield found
    for words, name in found.items():
        assert pointer_faults(words) == [] and movable_exchanges(words) == [], name


def test_there_are_thirty_programs() -> None:
    assert len(PROGRAMS) >= 30


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_as_for_moltenvk(program: Callable[[], None], modules: dict[bytes, str]) -> None:
    program()


def test_guarded_vectors_and_narrow_atomics(modules: dict[bytes, str]) -> None:
    """Accesses out of range do nothing; atomics on bytes leave their neighbours alone."""
    n = 37
    v = ti.Vector.field(3, ti.f32, n)
    w, out = ti.Vector.field(4, ti.f32, n), ti.Vector.field(4, ti.f32, n)
    counts, at = ti.field(ti.u8, n), ti.field(ti.i32, n)
    rng = np.random.default_rng(5)
    places = rng.integers(0, n, n).astype(np.int32)
    a, b = rng.random((n, 3), np.float32), rng.random((n, 4), np.float32)
    at.from_numpy(places)
    v.from_numpy(a)
    w.from_numpy(b)

    @ti.kernel
    def gather():
        for i in at:
            k = at[i]
            out[i] = w[k] + ti.Vector([v[k][0], v[k][1], v[k][2], 1.0])
            w[i + n] = w[i]  # out of range
            ti.atomic_add(counts[k], ti.u8(1))

    gather()
    want = b[places] + np.concatenate([a[places], np.ones((n, 1), np.float32)], 1)
    np.testing.assert_array_equal(out.to_numpy(), want)
    np.testing.assert_array_equal(counts.to_numpy(), np.bincount(places, minlength=n))
    np.testing.assert_array_equal(w.to_numpy(), b)
    assert modules


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("first", [0, 1])
def test_vectors_at_any_alignment(n: int, first: int, modules: dict[bytes, str]) -> None:
    """Vectors of fields and of host arrays, at offsets that are no multiple of their size."""
    host = np.arange(8 * n + first, dtype=np.float32)
    view = host[first:].reshape(8, n)
    y = ti.Vector.field(n, ti.f32, 8)

    @ti.kernel
    def copy(x: ti.types.ndarray(dtype=ti.types.vector(n, ti.f32), ndim=1)):
        for i in x:
            y[7 - i] = x[i]
            x[i] = 2.0 * x[i]

    before = view.copy()
    copy(view)
    np.testing.assert_array_equal(y.to_numpy(), before[::-1])
    np.testing.assert_array_equal(view, 2 * before)


# --- scans ---------------------------------------------------------------------------------------

COMBINED = {
    "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
IDENTITIES = {
    "min": lambda d: np.inf if d.kind == "f" else np.iinfo(d).max,
    "max": lambda d: -np.inf if d.kind == "f" else np.iinfo(d).min,
    "and": lambda d: np.array(-1).astype(d), "or": lambda d: 0, "xor": lambda d: 0,
}  # fmt: skip
N = 64


def scanned(x: np.ndarray, active: np.ndarray, size: int, name: str, *, own: bool) -> np.ndarray:
    """Scan of the active values of each subgroup, in a plain loop."""
    out = np.zeros_like(x)
    for k in np.flatnonzero(active):
        first = k - k % size
        before = [j for j in range(first, k + own) if active[j]]
        total = x.dtype.type(IDENTITIES[name](x.dtype))
        for j in before:
            total = COMBINED[name](total, x[j])
        out[k] = total
    return out


SCANNED = ("i32", "f32", "u64", "i16", "u8")


@pytest.mark.parametrize(
    ("dtype", "is_wide"), [*((name, False) for name in SCANNED), ("i32", True), ("u64", True)]
)
@pytest.mark.parametrize("name", COMBINED)
def test_scans_by_shuffles(
    name: str, dtype: str, is_wide: bool, modules: dict[bytes, str], need: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Scans over all invocations, and over the active ones of a branch."""
    need(dtype)
    if name not in ("min", "max") and dtype == "f32":
        pytest.skip("floats have no bits")
    device = current_runtime().device
    if not (device.caps.subgroup_shuffle and device.caps.subgroup_ballot):
        pytest.skip("no shuffles or ballots")
    size = device.caps.subgroup_size
    if is_wide:  # as for subgroups of 64; the driver's are narrower
        monkeypatch.setattr(device, "caps", device.caps._replace(subgroup_size=64))
    t = getattr(ti, dtype)
    x, rows = ti.field(t, N), ti.field(t, (4, N))
    inclusive = getattr(ti.simt.subgroup, f"inclusive_{name}")
    exclusive = getattr(ti.simt.subgroup, f"exclusive_{name}")

    @ti.kernel
    def scan():
        ti.loop_config(block_dim=N)
        for i in range(N):
            rows[0, i] = inclusive(x[i])
            rows[1, i] = exclusive(x[i])
            if i % 3 != 0 and i % 8 != 7:
                rows[2, i] = inclusive(x[i])
                rows[3, i] = exclusive(x[i])

    rng = np.random.default_rng(11)
    data = rng.integers(0, 100, N).astype(x.to_numpy().dtype)
    x.from_numpy(data)
    scan()
    every, k = np.ones(N, bool), np.arange(N)
    some = (k % 3 != 0) & (k % 8 != 7)
    want = [
        scanned(data, active, size, name, own=own)
        for active in (every, some)
        for own in (True, False)
    ]
    np.testing.assert_array_equal(rows.to_numpy(), np.stack(want))
    assert modules and not [opcode for words in modules for opcode in missing_scans(words)]

"""Attributes of fields and arrays that completion shows, and their count of axes."""

from __future__ import annotations

from typing import Any

import pytest

import vkchi as ti

S = ti.types.struct(a=ti.i32)
MAKERS: dict[str, Any] = {
    "scalar field": lambda: ti.field(ti.f32, (4, 5)),
    "vector field": lambda: ti.Vector.field(3, ti.f32, (4, 5)),
    "matrix field": lambda: ti.Matrix.field(2, 3, ti.f32, (4, 5)),
    "ndarray": lambda: ti.ndarray(ti.f32, (4, 5)),
    "vector ndarray": lambda: ti.Vector.ndarray(3, ti.f32, (4, 5)),
    "struct field": lambda: S.field(shape=(4, 5)),
    "struct ndarray": lambda: S.ndarray((4, 5)),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_dir_lists_names_for_users(kind: str) -> None:
    array = MAKERS[kind]()
    shown = {name for name in dir(array) if not name.startswith("_")}
    assert {"shape", "dtype", "fill", "copy_from", "to_numpy", "from_numpy", "ndim"} <= shown
    assert len(shown) < 20 and all(hasattr(array, name) for name in shown)
    assert not shown & {"tell", "claims", "put_unnoticed", "buffer", "ready", "host"}


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: ti.ad.Tape(ti.field(ti.f32, (), needs_grad=True)), {"grad", "report"}),
        (ti.record, {"grad", "run", "run_until", "run_while"}),
        (lambda: ti.field(ti.f32, 4), {
            "copy_from", "dtype", "dual", "fill", "from_numpy", "from_torch", "grad", "ndim",
            "parent", "shape", "snode", "to_numpy", "to_torch"}),
        (lambda: S.field(shape=4), {
            "a", "copy_from", "dtype", "dual", "fill", "from_numpy", "from_torch",
            "get_member_field", "grad", "keys", "ndim", "shape", "to_numpy", "to_torch"}),
        (lambda: ti.ndarray(ti.f32, 4), {
            "copy_from", "dtype", "element_shape", "element_type", "fill", "from_numpy",
            "from_torch", "get_type", "grad", "ndim", "shape", "to_numpy", "to_torch"}),
    ],
    ids=["tape", "record", "field", "struct field", "ndarray"],
)  # fmt: skip
def test_dir_lists_the_names_of_the_reference(make: Any, names: set[str]) -> None:
    thing = make()
    shown = {name for name in dir(thing) if not name.startswith("_")}
    assert shown == names and all(hasattr(thing, name) for name in shown)


@pytest.mark.parametrize("kind", MAKERS)
def test_the_count_of_axes(kind: str) -> None:
    """Of fields of vectors and matrices it is that of an element, as in Taichi."""
    expected = {"vector field": 1, "matrix field": 2}.get(kind, 2)
    assert MAKERS[kind]().ndim == expected


def test_dir_of_a_users_subclass_has_its_own_names():
    class Mine(ti.Matrix):
        def extra(self):
            return 1

    made = Mine([1, 2])
    assert "extra" in dir(made) and "to_list" in dir(made)
    assert "extra" not in dir(ti.Vector([1, 2]))


@pytest.mark.parametrize("kind", MAKERS)
def test_an_array_cannot_be_detached(kind: str) -> None:
    """`detach` of torch released a field's memory, by a method of vkchi with this name."""
    array = MAKERS[kind]()
    assert not hasattr(array, "detach")
    array.fill(1)
    assert array.shape and array.to_numpy() is not None


def test_help_for_detach() -> None:
    with pytest.raises(AttributeError, match="ti.stop_grad"):
        ti.field(ti.f32, 4).detach()  # type: ignore[attr-defined]

"""Objects and structs that methods and functions change, or are refused to change."""

from typing import Any

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@ti.dataclass
class Struct:
    x: ti.f32

    @ti.func
    def add(self, d):
        self.x = self.x + d


class Part:
    def __init__(self, x):
        self.x = x

    def add(self, d):
        self.x = self.x + d


class Whole:
    def __init__(self, x):
        self.x, self.part = x, Part(x)

    def add(self, d):
        self.part.add(d)


@ti.func
def add_to(d: ti.f32, x: ti.template()):
    x = x + d


@ti.func
def add_by_another(x: ti.template()):
    add_to(x=x, d=1.0)


def test_iterations_that_change_structs_by_methods_have_an_order() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.f32:
        s = Struct(a)
        for _ in range(n):
            s.add(1.0)
        return s.x

    check(k(1.0, 64), 65.0)


@pytest.mark.ours("objects-made")
def test_iterations_that_change_objects_by_methods_have_an_order() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.types.vector(3, ti.f32):
        p, w, ws = Part(a), Whole(a), [Whole(a), Whole(a)]
        for _ in range(n):
            p.add(1.0)
        for _ in range(n):
            w.add(1.0)
        for _ in range(n):
            ws[1].add(1.0)
        return ti.Vector([p.x, w.part.x, ws[1].part.x])

    check(k(1.0, 64), [65.0, 65.0, 65.0])


def test_iterations_that_change_arguments_of_arguments_have_an_order() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.f32:
        s = a
        for _ in range(n):
            add_by_another(s)
        return s

    check(k(1.0, 64), 65.0)


@pytest.mark.ours("objects-made")
def test_what_would_change_only_a_copy_is_refused() -> None:
    def change(p):
        p.x = 3.0

    class Sum:
        def __init__(self, x):
            self.x = x

        def __lshift__(self, d):
            self.x = self.x + d
            return self

        def __len__(self):
            return 5

    @ti.kernel
    def by_a_function(a: ti.f32) -> ti.f32:
        p = Part(a)
        change(p)
        return p.x

    @ti.kernel
    def by_an_operator(a: ti.f32) -> ti.f32:
        s = Sum(a)
        s << 1.0
        return s.x

    @ti.kernel
    def by_a_kept_method(a: ti.f32) -> ti.f32:
        p = Part(a)
        add = p.add
        add(1.0)
        return p.x

    @ti.kernel
    def length(a: ti.f32) -> ti.i32:
        return len(Sum(a))

    refused: list[tuple[Any, str]] = [
        (by_a_function, "has a copy"), (by_an_operator, "has a copy"),
        (by_a_kept_method, "do not keep"), (length, "len"),
    ]  # fmt: skip
    for kernel, words in refused:
        with pytest.raises(ti.TaichiCompilationError, match=words):
            kernel(1.0)

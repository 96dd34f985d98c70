"""`ti.static`: returns in it, recursion at compile time, lists and dicts."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("in-a-list")
def test_docs_list_assigned() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = [1, 2]
        if ti.static(1 in a):
            return 1
        return 0

    check(k(), 0)


def test_docs_ok_static_for() -> None:
    @ti.kernel
    def ok_return_inside_static_for() -> ti.i32:
        a = 0
        for i in ti.static(range(10)):
            a += i
            if ti.static(i == 8):
                return a

    check(ok_return_inside_static_for(), 36)


def test_docs_static_if_no_ret() -> None:
    @ti.kernel
    def k(a: ti.template()) -> ti.i32:
        if ti.static(a):
            return 1

    check(k(1), 1)


def test_docs_static_if_no_ret2() -> None:
    @ti.kernel
    def k(a: ti.template()) -> ti.i32:
        if ti.static(a):
            return 1

    with pytest.raises(ti.TaichiSyntaxError):
        k(0)


def test_func_annot_no_return() -> None:
    @ti.func
    def f() -> ti.i32:
        pass

    @ti.kernel
    def k() -> ti.i32:
        f()
        return 1

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_kernel_noreturn_annot() -> None:
    @ti.kernel
    def k() -> ti.i32:
        pass

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_ctrec() -> None:
    @ti.func
    def s(n: ti.template()) -> ti.i32:
        ret = 0
        if ti.static(n > 0):
            ret = n + s(n - 1)
        return ret

    @ti.kernel
    def k() -> ti.i32:
        return s(10)

    check(k(), 55)


@pytest.mark.ours("isinstance")
def test_isinst() -> None:
    @ti.func
    def f(x):
        r = 0
        if ti.static(isinstance(x, int)):
            r = 1
        elif ti.static(isinstance(x, float)):
            r = 2
        return r

    @ti.kernel
    def k() -> ti.i32:
        return f(1) * 10 + f(2.0)

    check(k(), 12)


def test_isinst_tmpl() -> None:
    @ti.func
    def f(x: ti.template()):
        r = 0
        if ti.static(isinstance(x, int)):
            r = 1
        elif ti.static(isinstance(x, float)):
            r = 2
        elif ti.static(isinstance(x, ti.Field)):
            r = 3
        elif ti.static(isinstance(x, (list, tuple))):
            r = 4
        elif ti.static(isinstance(x, str)):
            r = 5
        return r

    x = ti.field(ti.f32, 3)

    @ti.kernel
    def k() -> ti.i32:
        return f(1) * 10000 + f(2.0) * 1000 + f(x) * 100 + f((1, 2)) * 10 + f("a")

    check(k(), 12345)


def test_dictcomp2() -> None:
    @ti.kernel
    def k(p: ti.i32) -> ti.i32:
        d = {i: i * p for i in range(4) if i % 2 == 1}
        return d[1] + d[3]

    check(k(5), 20)


def test_setcomp() -> None:
    @ti.kernel
    def k():
        d = {i for i in range(3)}

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_comp_dyn() -> None:
    @ti.kernel
    def k(p: ti.i32) -> ti.i32:
        b = ti.Vector([i * p for i in range(p)])
        return 1

    with pytest.raises(ti.TaichiTypeError):
        k(5)

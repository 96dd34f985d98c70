"""Python syntax that kernels support or reject."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_pass() -> None:
    @ti.kernel
    def k():
        pass

    assert k() is None


def test_nested_func() -> None:
    @ti.kernel
    def k() -> ti.i32:
        def f(x):
            return x + 1

        return f(3)

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_lambda() -> None:
    @ti.kernel
    def k() -> ti.i32:
        f = lambda x: x + 1
        return f(3)

    check(k(), 4)


def test_lambda_captured() -> None:
    f = lambda x: x + 1

    @ti.kernel
    def k() -> ti.i32:
        return f(3)

    check(k(), 4)


def test_plain_fn() -> None:
    def f(x):
        return x + 1

    @ti.kernel
    def k() -> ti.i32:
        a = 3
        return f(a)

    check(k(), 4)


def test_docstring() -> None:
    @ti.kernel
    def k() -> ti.i32:
        """doc"""
        "more"
        return 3

    check([k(), k.__doc__], [3, "doc"])


def test_global_kw() -> None:
    @ti.kernel
    def k():
        global ZZ
        ZZ = 1

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_del() -> None:
    @ti.kernel
    def k():
        a = 1
        del a

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_try() -> None:
    @ti.kernel
    def k():
        try:
            a = 1
        except:
            pass

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_yield() -> None:
    @ti.kernel
    def k():
        yield 1

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_gen() -> None:
    @ti.kernel
    def k() -> ti.i32:
        return sum(i for i in range(3))

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_with() -> None:
    @ti.kernel
    def k():
        with open("x"):
            pass

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_raise() -> None:
    @ti.kernel
    def k():
        raise ValueError("x")

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_import() -> None:
    @ti.kernel
    def k():
        import math  # noqa: F401

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_class() -> None:
    @ti.kernel
    def k():
        class A:
            pass

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_is() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return a is 3

    with pytest.raises(ti.TaichiSyntaxError):
        k(3)


@pytest.mark.ours("texts-in-variables")
def test_fstring() -> None:
    @ti.kernel
    def k():
        a = f"{1}"

    assert k() is None


@pytest.mark.ours("texts-in-variables")
def test_str() -> None:
    @ti.kernel
    def k():
        a = "x"

    assert k() is None


def test_undefined() -> None:
    @ti.kernel
    def k() -> ti.i32:
        return nope

    with pytest.raises(ti.TaichiNameError):
        k()


def test_expr_stmt() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = 3
        a
        a + 1
        return a

    check(k(), 3)


def test_ellipsis() -> None:
    @ti.kernel
    def k(): ...

    assert k() is None

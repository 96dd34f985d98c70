"""`print` in kernels: every kind of value, formats, the order of lines."""

# ruff: noqa: UP030, UP031, UP032

import ctypes
from collections.abc import Callable

import pytest

import vkchi as ti

Said = Callable[[], str]
Lacks = Callable[[str], bool]
WHOLE, HALF, WORD, YES = 7, 2.5, "word", True
PAIR = (1, 2)
VECTOR = ti.Vector([1, 2])


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    """Output since the last call."""

    def read() -> str:
        ti.sync()
        ctypes.CDLL(None).fflush(None)  # Taichi prints with C's printf
        return capfd.readouterr().out

    return read


def test_numbers_with_six_decimals(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32, n: ti.i32, u: ti.u32):
        print(x, n, u)

    run(1.5, -3, 4000000000)
    assert said() == "1.500000 -3 4000000000\n"


@pytest.mark.parametrize("name", ["i8", "i16", "u8", "u16"])
def test_narrow_integers(said: Said, lacks: Lacks, name: str) -> None:
    if lacks(name):
        pytest.skip(f"this device has no {name}")
    dtype = getattr(ti, name)

    @ti.kernel
    def run(n: ti.i32):
        print(ti.cast(n, dtype), ti.cast(n + 1, dtype) - ti.cast(1, dtype))

    run(100)
    assert said() == "100 100\n"


def test_negative_narrow_integers(said: Said, lacks: Lacks) -> None:
    if lacks("i8") or lacks("i16"):
        pytest.skip("this device has no narrow integers")

    @ti.kernel
    def run(n: ti.i32):
        print(ti.cast(n, ti.i8), ti.cast(n, ti.i16))

    run(-5)
    assert said() == "-5 -5\n"


def test_half_floats(said: Said, lacks: Lacks) -> None:
    if lacks("f16"):
        pytest.skip("this device has no f16")

    @ti.kernel
    def run(x: ti.f32):
        print(ti.cast(x, ti.f16))

    run(-1.5)
    assert said() == "-1.500000\n"


def test_64_bits(said: Said, lacks: Lacks) -> None:
    if lacks("i64") or lacks("f64"):
        pytest.skip("this device has no 64-bit numbers")

    @ti.kernel
    def run(a: ti.i64, b: ti.u64, c: ti.f64):
        print(a, b, c)

    run(-(1 << 40), 1 << 63, 2.25)
    assert said() == "-1099511627776 9223372036854775808 2.250000000000\n"


def test_bools_are_0_and_1(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32, b: ti.u1):
        print(x > 1, x < 1, b, True, False)

    run(1.5, True)
    assert said() == "1 0 1 1 0\n"


def test_infinity(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        print(1.0 / x, -1.0 / x)

    run(0.0)
    assert said() == "inf -inf\n"


@pytest.mark.ours("print-nan")
def test_nan(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        print(ti.sqrt(x))

    run(-1.0)
    assert said() == "nan\n"


def test_large_and_small_floats(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        print(x * 1e20, x * 1e-20)

    run(1.0)
    assert said() == "100000002004087734272.000000 0.000000\n"


def test_literals_are_of_the_default_type(said: Said) -> None:
    @ti.kernel
    def k():
        print(16777217.0, 1e39, f"{0.1:.12f} {1 / 3:.12f}", "{:.10f}".format(0.1))

    k()
    assert said() == "16777216.000000 inf 0.100000001490 0.333333343267 0.1000000015\n"


def test_exponents_of_64_bits(said: Said, lacks: Lacks) -> None:
    if lacks("f64") or lacks("i64"):
        pytest.skip("the device has no f64")

    @ti.kernel
    def k(x: ti.f64):
        print(f"{x:e} {x:g} {x:.3e} {x:.3g}")

    k(1 / 3)
    assert said() == "3.333333333333e-01 0.333333333333 3.333e-01 0.333\n"


def test_vectors_and_matrices(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        v = ti.Vector([x, 2 * x])
        m = ti.Matrix([[1, 2], [3, 4]])
        print(v)
        print(m, v[1], m[1, 0])
        print(v == v)

    run(1.0)
    assert said() == "[1.000000, 2.000000]\n[[1, 2], [3, 4]] 2.000000 3\n[1, 1]\n"


def test_vector_of_narrow_components(said: Said, lacks: Lacks) -> None:
    if lacks("u8"):
        pytest.skip("this device has no u8")

    @ti.kernel
    def run():
        print(ti.Vector([1, 2, 255], ti.u8))

    run()
    assert said() == "[1, 2, 255]\n"


def test_element_of_a_field(said: Said) -> None:
    x = ti.field(ti.f32, shape=3)
    v = ti.Vector.field(2, ti.i32, shape=(2, 2))

    @ti.kernel
    def run():
        x[1] = 0.5
        v[0, 1] = [3, 4]
        print(x[1], v[0, 1], v[0, 1].y)

    run()
    assert said() == "0.500000 [3, 4] 4\n"


def test_sep_and_end(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32, n: ti.i32):
        print(x, n, sep="|")
        print(x, n, sep=", ", end="!\n")
        print("a", "b", sep="", end="")
        print()
        print(n, end=" ")
        print(n)

    run(1.5, 3)
    assert said() == "1.500000|3\n1.500000, 3!\nab\n3 3\n"


def test_strings_are_not_formats(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        print("a %s %d %%", x, "é", 'tab\tquote" {}')

    run(1.0)
    assert said() == 'a %s %d %% 1.000000 é tab\tquote" {}\n'


def test_text_alone(said: Said) -> None:
    @ti.kernel
    def run():
        print("hello")
        print("a" + "b", "-" * 3)

    run()
    run()
    assert said() == "hello\nab ---\n" * 2


def test_compile_time_constants_print(said: Said) -> None:
    @ti.kernel
    def run():
        print(WHOLE, HALF, WORD, YES, PAIR, VECTOR)
        print(f"{WHOLE} {HALF} {WORD} {WHOLE:4d}|")

    run()
    assert said() == "7 2.500000 word 1 [1, 2] [1, 2]\n7 2.5 word    7|\n"


def test_lists_and_tuples(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        pair = (1, x)
        print("t", pair)
        print([x, 2], (1, 2, "s"), [x, [1, x]])
        print([], ())

    run(2.5)
    expected = "t [1, 2.500000]\n[2.500000, 2] [1, 2, s] [2.500000, [1, 2.500000]]\n[] []\n"
    assert said() == expected


@pytest.mark.ours("print-anything")
def test_none_types_and_structs(said: Said) -> None:
    point = ti.types.struct(n=ti.i32, v=ti.types.vector(2, ti.f32))

    @ti.kernel
    def run(x: ti.f32):
        print(None, ti.f32)
        p = point(n=3, v=[x, 1.0])
        print("p:", p)

    run(2.0)
    assert said() == "None f32\np: {'n': 3, 'v': [2.000000, 1.000000]}\n"


# --- formats -------------------------------------------------------------------------------------


def test_f_strings(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32, n: ti.i32):
        print(f"x={x} n={n}")
        print(f"{x:.3f} {x:08.2f} {n:5d}|{x:+.1f} {x:.0f}")
        print(f"{x:e} {x:g} {n:05d}", f"{n:3}")
        print(f"{x}% {n}%%", f"{x=}", f"{x!r}")

    run(1.5, 42)
    expected = "x=1.500000 n=42\n1.500 00001.50    42|+1.5 2\n1.500000e+00 1.5 00042  42\n"
    assert said() == expected + "1.500000% 42%% x=1.500000 1.500000\n"


def test_width_alone_keeps_the_decimals(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        print(f"{x:10}|{x:8.3}|")

    run(1.5)
    assert said() == "  1.500000|   1.500|\n"


def test_f_string_of_a_condition(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        print(f"{x > 1} {x + 1:.2f}")

    run(1.5)
    assert said() == "1 2.50\n"


def test_f_string_of_vectors(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32):
        v = ti.Vector([x, 2 * x])
        m = ti.Matrix([[x, 1.0], [2.0, 3.0]])
        print(f"{v} {v:.2f}")
        print(f"m={m} row={m[0, :]}")

    run(1.5)
    expected = "[1.500000, 3.000000] [1.50, 3.00]\n"
    row = "[1.500000, 1.000000]"
    assert said() == f"{expected}m=[{row}, [2.000000, 3.000000]] row={row}\n"


def test_format_method(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32, n: ti.i32):
        print("{} {}".format(x, n))
        print("{0} {1} {0}".format(x, n))
        print("{a} {b}".format(a=x, b=n))
        print("{:.2f}|{:5d}".format(x, n))
        print("{1}{0}".format("a", "b"), "{:d}".format(3))

    run(1.5, 42)
    expected = "1.500000 42\n1.500000 42 1.500000\n1.500000 42\n1.50|   42\nba 3\n"
    assert said() == expected


def test_formats_of_c(said: Said) -> None:
    """printf formats that Python's formats lack."""

    @ti.kernel
    def run(x: ti.f32, n: ti.i32, u: ti.u32):
        print(f"{n:.2d}|{n:i}|{n:.4i}|{n:ld}|{-n:.3d}|{3:.2d}|{u:u}|{u:.3u}")
        print(f"{x:lf}|{x:.2lf}|{x:8.3lf}")
        print("{:.2d} {:.3d}".format(n, ti.Vector([n, 2])))

    run(1.5, 7, 9)
    assert said() == ("07|7|0007|7|-007|03|9|009\n1.500000|1.50|   1.500\n07 [007, 002]\n")


@pytest.mark.parametrize("text", ["{:d}", "{:.2d}", "{:i}", "{:u}"])
def test_formats_of_integers_reject_floats(text: str) -> None:
    @ti.kernel
    def run(x: ti.f32):
        print(text.format(x))

    with pytest.raises(ti.TaichiTypeError):
        run(1.0)


@pytest.mark.ours("print-formats")
def test_every_format_of_python(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32, n: ti.i32):
        print(f"{x:>12}|{n:<6}|{n:^6}|{n:x}|{n:#b}|{n:,}")
        print(f"{{{n}}} {x:{WHOLE}.{2}f}")
        print("{:{}.{}f} {}".format(x, 7, 1, n))

    run(1.5, 4200)
    expected = (
        "    1.500000|4200  | 4200 |1068|0b1000001101000|4,200\n{4200}    1.50\n    1.5 4200\n"
    )
    assert said() == expected


@pytest.mark.ours("print-formats")
def test_percent(said: Said) -> None:
    @ti.kernel
    def run(x: ti.f32, n: ti.i32):
        print("%d" % n, "%05.1f|%-4d|%s %%" % (x, n, x))

    run(1.5, 42)
    assert said() == "42 001.5|42  |1.500000 %\n"


@pytest.mark.ours("print-formats")
def test_texts_are_values(said: Said) -> None:
    @ti.kernel
    def run(n: ti.i32):
        text = f"n = {n}"
        n2 = n + 1
        print(text + "!", "<" + text + ">", n2)
        print(str(n) + "|" + format(n * 0.5, ".1f"))

    run(3)
    assert said() == "n = 3! <n = 3> 4\n3|1.5\n"


# --- order ---------------------------------------------------------------------------------------


def test_serial_code_keeps_its_order(said: Said) -> None:
    @ti.kernel
    def run(n: ti.i32):
        print("begin")
        k = 0
        while k < n:
            print("k", k)
            if k == 1:
                print("one")
            k += 1
        print("end")

    run(3)
    assert said() == "begin\nk 0\nk 1\none\nk 2\nend\n"


def test_parallel_loops_between_serial_code(said: Said) -> None:
    @ti.kernel
    def run():
        print("first")
        for i in range(8):
            print("i", i)
        print("then")
        for i, j in ti.ndrange(2, 3):
            print("ij", i, j)
        print("last")

    run()
    lines = said().splitlines()
    assert (lines[0], lines[9], lines[16]) == ("first", "then", "last")
    assert sorted(lines[1:9]) == [f"i {i}" for i in range(8)]
    assert sorted(lines[10:16]) == [f"ij {i} {j}" for i in range(2) for j in range(3)]


@pytest.mark.ours("print-order", run=False)  # under Taichi sometimes in order
def test_parallel_loops_print_in_the_order_of_their_iterations(said: Said) -> None:
    @ti.kernel
    def run(n: ti.i32):
        for i in range(n):
            print(i, "a")
            print(i, "b")

    run(3000)
    assert said() == "".join(f"{i} a\n{i} b\n" for i in range(3000))


def test_launches_and_python_in_order(said: Said) -> None:
    @ti.kernel
    def run(n: ti.i32):
        print("kernel", n)

    for k in range(3):
        run(k)
    assert said() == "kernel 0\nkernel 1\nkernel 2\n"


def test_functions_print(said: Said) -> None:
    @ti.func
    def double(a):
        print("double", a)
        return 2 * a

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        return double(double(n))

    assert run(3) == 12
    assert said() == "double 3\ndouble 6\n"


def test_unrolled_loops_print_each_iteration(said: Said) -> None:
    @ti.kernel
    def run():
        for k in ti.static(range(3)):
            print("k", k, f"{k * 0.5}")

    run()
    assert said() == "k 0 0.0\nk 1 0.5\nk 2 1.0\n"


def test_a_kernel_that_prints_still_computes(said: Said) -> None:
    x = ti.field(ti.i32, shape=1000)

    @ti.kernel
    def run() -> ti.i32:
        total = 0
        for i in x:
            x[i] = i
            total += i
            if i == 500:
                print("half way")
        return total

    assert run() == 499500
    assert said() == "half way\n"
    assert x.to_numpy().tolist() == list(range(1000))


def test_branches_that_do_not_run_print_nothing(said: Said) -> None:
    @ti.kernel
    def run(n: ti.i32):
        if n > 3:
            print("big", n)
        else:
            print("small", n)

    run(1)
    run(5)
    assert said() == "small 1\nbig 5\n"


@pytest.mark.ours("print-lost")
def test_too_many_lines_are_counted(said: Said) -> None:
    from vkchi.reports.sites import LINE_WORDS

    @ti.kernel
    def run(n: ti.i32):
        for i in range(n):
            print(ti.Matrix.zero(ti.i32, 16, 16), i)

    size, count = 2 + 256 + 1, 9000
    run(count)
    lines = said().splitlines()
    kept = LINE_WORDS // size
    assert len(lines) == kept + 1
    assert lines[-1] == (
        f"vkchi: {count - kept} more printed lines of this launch were lost: too many at once"
    )
    run(2)
    assert len(said().splitlines()) == 2


# --- wrong uses ----------------------------------------------------------------------------------


def test_unknown_option() -> None:
    @ti.kernel
    def run():
        print(1, colour="red")

    with pytest.raises(ti.TaichiCompilationError):
        run()


def test_whole_field() -> None:
    x = ti.field(ti.i32, shape=3)

    @ti.kernel
    def run():
        print(x)

    with pytest.raises(ti.TaichiCompilationError):
        run()


def test_format_that_does_not_fit() -> None:
    @ti.kernel
    def run(x: ti.f32):
        print(f"{x:d}")

    with pytest.raises(ti.TaichiTypeError):
        run(1.0)

"""Targets of atomics: components, members, locals, references, branches; augmented forms."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_vectors_and_components() -> None:
    v = ti.Vector.field(3, ti.f32, 2)

    @ti.kernel
    def run():
        for i in range(400):
            v[i % 2] += ti.Vector([1.0, 0.5, i % 4])
            v[i % 2].x -= 0.25
            v[0][1] += 1.0
            ti.atomic_max(v[1].z, 5000.0 - i)

    run()
    third = [sum(i % 4 for i in range(400) if i % 2 == p) for p in (0, 1)]
    check(v.to_numpy()[0], [200 - 50.0, 100.0 + 400.0, float(third[0])])
    assert v[1].z >= 5000.0


def test_a_number_for_all_components() -> None:
    v = ti.Vector.field(2, ti.i32, ())

    @ti.kernel
    def run() -> ti.types.vector(2, ti.i32):
        v[None] = [3, 4]
        return ti.atomic_add(v[None], 10)

    check(run(), [3, 4])
    check(v[None].to_numpy(), [13, 14])


def test_matrix_elements_rows_and_swizzles() -> None:
    m = ti.Matrix.field(2, 2, ti.f32, ())
    v = ti.Vector.field(3, ti.f32, ())

    @ti.kernel
    def run():
        for i in range(10):
            m[None] += ti.Matrix([[1.0, 0.0], [0.0, 2.0]])
        for i in range(10):
            ti.atomic_sub(m[None][1, 0], 3.0)
        for i in range(10):
            m[None][0, :] += ti.Vector([0.0, 5.0])
        for i in range(10):
            v[None].xz += ti.Vector([1.0, 2.0])
            ti.atomic_add(v[None].y, i)

    run()
    check(m[None].to_numpy(), [[10.0, 50.0], [-30.0, 20.0]])
    check(v[None].to_numpy(), [10.0, 45.0, 20.0])


def test_computed_components() -> None:
    v = ti.Vector.field(4, ti.i32, 2)

    @ti.kernel
    def run():
        for i in range(80):
            v[i % 2][i % 4] += i
            ti.atomic_max(v[1][(i * 3) % 4], 10000)

    run()
    want = [sum(i for i in range(80) if i % 2 == 0 and i % 4 == k) for k in range(4)]
    check(v[0].to_numpy(), want)
    assert (v[1].to_numpy() >= 10000).all()


def test_struct_members() -> None:
    particle = ti.types.struct(mass=ti.f32, velocity=ti.math.vec2, count=ti.i32)
    x = particle.field(shape=3)

    @ti.kernel
    def run():
        for i in range(60):
            x[i % 3].mass += 0.5
            x[i % 3].velocity += ti.Vector([1.0, -1.0])
            x[0].velocity.y -= 1.0
            ti.atomic_max(x[i % 3].count, i)

    run()
    check(x.mass, [10.0, 10.0, 10.0])
    check(x.velocity, [[20.0, -80.0], [20.0, -20.0], [20.0, -20.0]])
    check(x.count, [57, 58, 59])


def test_local_variables() -> None:
    out = ti.field(ti.i32, (20, 4))

    @ti.kernel
    def run():
        for i in range(20):
            s, v = 5, ti.Vector([1, 2])
            old = ti.atomic_add(s, i)
            before = ti.atomic_max(v[1], i)
            ti.atomic_xor(v[0], 3)
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = s, old, v[0] * 100 + v[1], before

    run()
    check(out, [[5 + i, 5, 200 + max(2, i), 2] for i in range(20)])


def test_kernel_variables_are_shared() -> None:
    @ti.kernel
    def run() -> ti.types.vector(4, ti.i32):
        total, most, bits, v = 0, -1, 0, ti.Vector([0, 0])
        for i in range(1000):
            total += i
            ti.atomic_max(most, (i * 7) % 1000)
            bits |= i
            v[i % 2] += 1
        return ti.Vector([total, most, bits, v[0] * 1000 + v[1]])

    check(run(), [499500, 999, 1023, 500500])


@pytest.mark.parametrize("t", ["i8", "u16", "f16", "i64"])
def test_kernel_variables_of_other_widths(t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    dtype = getattr(ti, t)

    @ti.kernel
    def run() -> ti.i32:
        total = ti.cast(0, dtype)
        for i in range(100):
            total += ti.cast(1, dtype)
        return int(total)

    check(run(), 100)


def test_atomics_through_references() -> None:
    x, v = ti.field(ti.i32, 3), ti.Vector.field(2, ti.i32, ())

    @ti.func
    def deposit(target: ti.template(), amount):
        return ti.atomic_add(target, amount)

    @ti.func
    def bump(target: ti.template()):
        target += 1

    @ti.kernel
    def run() -> ti.i32:
        seen = 0
        for i in range(30):
            seen += deposit(x[i % 3], 1)
            deposit(v[None].y, 2)
            bump(x[0])
            local = 0
            bump(local)
            seen += 0 * local
        return 0 * seen + deposit(x[2], 100)

    check(run(), 10)
    check(x, [40, 10, 110])
    check(v[None].to_numpy(), [0, 60])


def test_values_in_expressions() -> None:
    x, out = ti.field(ti.i32, ()), ti.field(ti.i32, 3)

    @ti.kernel
    def run():
        for _ in range(1):
            out[0] = ti.atomic_add(x[None], 2) * 10 + ti.atomic_add(x[None], 3)
            out[ti.atomic_sub(x[None], 4) - 4] = 7
            out[2] = max(ti.atomic_mul(x[None], 9), -1) if x[None] > 0 else 5

    run()
    check(out, [2, 7, 1])
    check(x, 9)


def test_branches_and_loops() -> None:
    x = ti.field(ti.i32, 5)

    @ti.kernel
    def run():
        for i in range(200):
            if i % 2 == 0:
                x[0] += 1
            elif i % 3 == 0:
                if ti.atomic_add(x[4], 1) >= 0:
                    x[1] += i
            else:
                j = 0
                while j < i % 4:
                    x[2] += j
                    j += 1
                for k in range(3):
                    if k == 1:
                        continue
                    ti.atomic_max(x[3], i * k)

    run()
    odd3 = [i for i in range(200) if i % 2 and i % 3 == 0]
    rest = [i for i in range(200) if i % 2 and i % 3]
    sums = sum(sum(range(i % 4)) for i in rest)
    check(x, [100, sum(odd3), sums, max(rest) * 2, len(odd3)])


def test_compaction() -> None:
    n = 1000
    x, out, length = ti.field(ti.i32, n), ti.field(ti.i32, n), ti.field(ti.i32, ())
    values = np.random.default_rng(9).integers(0, 100, n).astype(np.int32)
    x.from_numpy(values)

    @ti.kernel
    def run():
        for i in x:
            if x[i] >= 50:
                out[ti.atomic_add(length[None], 1)] = x[i]

    run()
    kept = np.sort(values[values >= 50])
    np.testing.assert_array_equal(np.sort(out.to_numpy()[: length[None]]), kept)


def test_serial_code() -> None:
    x = ti.field(ti.i32, ())

    @ti.kernel
    def run() -> ti.i32:
        x[None] = 3
        x[None] += 4
        old = ti.atomic_sub(x[None], 5)
        return old * 100 + x[None]

    check(run(), 702)


def test_values_are_cast_to_the_type_of_the_element() -> None:
    x, y = ti.field(ti.i32, 2), ti.field(ti.f32, ())

    @ti.kernel
    def run():
        for _ in range(10):
            x[0] += 1.75
            ti.atomic_sub(x[1], 1.75)
            y[None] += 2

    run()
    check(x, [10, -10])
    check(y, 20.0)


# --- augmented assignments -----------------------------------------------------------------------

FORMS = {
    "add": (17, 22), "sub": (17, 12), "mul": (17, 85), "floordiv": (17, 3), "mod": (17, 2),
    "pow": (3, 243), "lshift": (3, 96), "rshift": (170, 5), "and": (23, 5), "or": (18, 23),
    "xor": (23, 18),
}  # fmt: skip


def augmented(target: Any, form: str) -> Any:
    """A kernel of one augmented assignment with 5 to target[0]."""

    @ti.kernel
    def run():
        for _ in range(1):
            if ti.static(form == "add"):
                target[0] += 5
            elif ti.static(form == "sub"):
                target[0] -= 5
            elif ti.static(form == "mul"):
                target[0] *= 5
            elif ti.static(form == "floordiv"):
                target[0] //= 5
            elif ti.static(form == "mod"):
                target[0] %= 5
            elif ti.static(form == "pow"):
                target[0] **= 5
            elif ti.static(form == "lshift"):
                target[0] <<= 5
            elif ti.static(form == "rshift"):
                target[0] >>= 5
            elif ti.static(form == "and"):
                target[0] &= 5
            elif ti.static(form == "or"):
                target[0] |= 5
            else:
                target[0] ^= 5

    return run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("t", ["i32", "u8", "i16"])
def test_augmented_forms(form: str, t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    x = ti.field(getattr(ti, t), 1)
    start, want = FORMS[form]
    x[0] = start
    augmented(x, form)()
    assert x[0] == want


def test_augmented_division_of_floats() -> None:
    x = ti.field(ti.f32, 3)
    x.fill(7)

    @ti.kernel
    def run():
        for i in range(3):
            if i == 0:
                x[i] /= 2
            elif i == 1:
                x[i] **= 2
            else:
                x[i] *= 0.5

    run()
    check(x, [3.5, 49.0, 3.5])


# --- errors --------------------------------------------------------------------------------------


def test_needs_an_element() -> None:
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def expression():
        ti.atomic_add(x[0] + 1, 1)

    @ti.kernel
    def number():
        ti.atomic_add(1, 1)

    for run in (expression, number):
        with pytest.raises((ti.TaichiCompilationError, ti.TaichiTypeError)):
            run()


def test_only_in_kernels() -> None:
    x = ti.field(ti.i32, 3)
    with pytest.raises(ti.TaichiSyntaxError):
        ti.atomic_add(x[0], 1)


@pytest.mark.ours("atomic-bits-of-floats", run=False)
def test_no_bits_of_floats() -> None:
    x = ti.field(ti.f32, 3)

    @ti.kernel
    def run():
        ti.atomic_and(x[0], 1)

    with pytest.raises(ti.TaichiTypeError, match="`atomic_and` is for integers"):
        run()

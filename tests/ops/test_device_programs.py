"""Memory, control flow, atomics and invocations on the device, against the reference interpreter.

Programs are IR text; their results are exact (integers, or floats that are whole numbers), so
that both must agree to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.launch import BLOCK, lacks_of, launch, store_truths_as_words
from vkchi.device import Device
from vkchi.ir.core import Func
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.target.shader import Shader

N = 150
PLANES = "array<i32<2>[150] @(1%0*1;0,150;300;)>"  # no spare element: others go to the trash


def read_func(device: Device, text: str) -> Func:
    """The Func, fit for the device; skips the test where a type is lacking."""
    fn = parse_func(text)
    verify(fn)
    store_truths_as_words(fn, device.caps)
    lacks = lacks_of(fn, device.caps)
    if lacks:
        pytest.skip(f"{device.info.name} has no {', '.join(lacks)}")
    return fn


def loop(params: str, body: str, before: str = "", attr: str = "") -> str:
    """A Func whose body is `before` and a parallel loop over %n (an i32 parameter)."""
    return f"""func @program({params}, %n: i32) {{
      {before}
      %zero = const 0 : i32
      parallel %zero, %n {attr} {{
        ^(%i: i32)
        {body}
        yield
      }}
      yield
    }}
    """


def check(
    device: Device, text: str, arrays: dict[str, Any], values: Any = None, count: int = N
) -> Shader:
    """Run on both and compare all arrays."""
    fn = read_func(device, text)
    known = {**(values or {}), "n": np.int32(count)}
    names = {p.name for p in fn.params}
    wanted = {k: a.copy() for k, a in arrays.items()}
    run_reference(fn, {**wanted, **{k: v for k, v in known.items() if k in names}})
    shader = launch(device, fn, arrays, known, count)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)
    return shader


def ramp(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


# --- addressing ----------------------------------------------------------------------------------


def test_two_axes_of_vectors(device: Device) -> None:
    body = """
        %w = shape %x [1] : i32
        %r = floordiv %i, %w : i32
        %c = mod %i, %w : i32
        %p = elem %x, %r, %c [inbounds] : ptr<f32<3> global>
        %v = load %p : f32<3>
        %two = splat %s : f32<3>
        %u = mul %v, %two : f32<3>
        %q = elem %y, %c, %r [inbounds] : ptr<f32<3> global>
        store %q, %u
    """
    text = loop("%x: array<f32<3>[??]>, %y: array<f32<3>[??]>, %s: f32", body)
    arrays = {"x": ramp(10, 15, 3), "y": np.zeros((15, 10, 3), np.float32)}
    check(device, text, arrays, {"s": np.float32(2)})


@pytest.mark.parametrize("index", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("attr", ["", "[inbounds]"])
def test_index_types(device: Device, index: str, attr: str) -> None:
    body = f"""
        %k = cast %i : {index}
        %p = elem %x, %k, %k {attr} : ptr<f32<2> global>
        %v = load %p : f32<2>
        %q = elem %y, %k {attr} : ptr<f32<2> global>
        store %q, %v
    """
    text = loop("%x: array<f32<2>[??]>, %y: array<f32<2>[?]>", body)
    check(device, text, {"x": ramp(40, 40, 2), "y": np.zeros((40, 2), np.float32)}, count=40)


def test_constant_and_negative_indices(device: Device) -> None:
    body = """
        %one = const 1 : i32
        %two = const 2 : i32
        %p = elem %x, %two, %one : ptr<i32 global>
        %v = load %p : i32
        %q = elem %y, %i : ptr<i32 global>
        %o = atomic_add %q, %v : i32
        %minus = const -1 : i32
        %r = elem %y, %minus : ptr<i32 global>
        store %r, %one
    """
    text = loop("%x: array<i32[3,4]>, %y: array<i32[?]>", body)
    arrays = {"x": ramp(3, 4, dtype=np.int32), "y": np.zeros(N, np.int32)}
    check(device, text, arrays)


@pytest.mark.parametrize("shift", [-3, -200, 100, 2**30, -(2**31)])
@pytest.mark.parametrize("array", ["array<i32<2>[?]>", "array<i32<2>[150]>", PLANES])
def test_out_of_range_accesses_touch_nothing(device: Device, array: str, shift: int) -> None:
    body = f"""
        %d = const {shift} : i32
        %k = add %i, %d : i32
        %one = const 1 : i32
        %p = elem %x, %k : ptr<i32<2> global>
        %v = load %p : i32<2>
        %m = member %p [1] : ptr<i32 global>
        %o = atomic_max %m, %one : i32
        %w = splat %one : i32<2>
        store %p, %w
    """
    text = loop(f"%x: {array}, %guard: array<i32[?]>", body)
    arrays = {"x": ramp(N, 2, dtype=np.int32), "guard": ramp(N, dtype=np.int32)}
    check(device, text, arrays)


def test_out_of_range_loads_give_zero_after_ones_in_range(device: Device) -> None:
    body = """
        %d = const 1000 : i32
        %k = add %i, %d : i32
        %p = elem %x, %k : ptr<f32<3x3> global>
        %v = load %p : f32<3x3>
        %q = elem %y, %i : ptr<f32<3x3> global>
        store %q, %v
    """
    text = loop("%x: array<f32<3x3>[?]>, %y: array<f32<3x3>[?]>", body)
    check(device, text, {"x": ramp(N, 3, 3), "y": ramp(N, 3, 3)})


# Raw memory in and out: the interpreter has no layouts, numpy computes the expected results.
LAYOUTS = {
    # components apart: one plane each
    "array<f32<2>[6,4] @(1%0*4|1%0*1;0,24;48;)>": lambda i, j, c: c * 24 + i * 4 + j,
    # tiles of 2 x 2, components innermost
    "array<f32<2>[6,4] @(2%0*16+1%2*4|2%2*8+1%2*2;0,1;48;)>": lambda i, j, c: (
        (i // 2) * 16 + (i % 2) * 4 + (j // 2) * 8 + (j % 2) * 2 + c
    ),
    # digits that are no powers of two
    "array<f32<2>[6,4] @(3%0*24+1%3*2|1%0*6;0,1;48;)>": lambda i, j, c: (
        (i // 3) * 24 + (i % 3) * 2 + j * 6 + c
    ),
    # indices from -2 and 5 on
    "array<f32<2>[6,4] @(1%0*8|1%0*2;0,1;48;-2:5)>": lambda i, j, c: (i + 2) * 8 + (j - 5) * 2 + c,
}


@pytest.mark.parametrize("attr", ["", "[inbounds]"])
@pytest.mark.parametrize("array", LAYOUTS)
def test_memory_layouts(device: Device, array: str, attr: str) -> None:
    first = (-2, 5) if "-2:5" in array else (0, 0)
    body = f"""
        %four = const 4 : i32
        %r = floordiv %i, %four : i32
        %c = mod %i, %four : i32
        %a = const {first[0]} : i32
        %b = const {first[1]} : i32
        %ra = add %r, %a : i32
        %cb = add %c, %b : i32
        %p = elem %x, %ra, %cb {attr} : ptr<f32<2> global>
        %f = cast %i : f32
        %h = const 0.5 : f32
        %g = add %f, %h : f32
        %v = pack %f, %g : f32<2>
        store %p, %v
        %m = member_at %p, %four : ptr<f32 global>
        %old = load %m : f32
        %twice = add %old, %old : f32
        store %m, %twice
    """
    fn = read_func(device, loop(f"%x: {array}", body))
    memory = np.full(48, -1, np.float32)
    launch(device, fn, {"x": memory}, {"n": 24}, 24)
    for k in range(24):
        i, j = k // 4 + first[0], k % 4 + first[1]
        at = LAYOUTS[array]
        assert (memory[at(i, j, 0)], memory[at(i, j, 1)]) == (k, 2 * k + 1)


def test_irregular_components(device: Device) -> None:
    array = "array<f32<3>[8] @(1%0*1;0,8,40;48;)>"
    body = """
        %three = const 3 : i32
        %k = mod %i, %three : i32
        %p = elem %x, %i [inbounds] : ptr<f32<3> global>
        %m = member_at %p, %k : ptr<f32 global>
        %f = cast %i : f32
        store %m, %f
    """
    memory = np.full(48, -1, np.float32)
    launch(device, read_func(device, loop(f"%x: {array}", body)), {"x": memory}, {"n": 8}, 8)
    expected = np.full(48, -1, np.float32)
    for i in range(8):
        expected[(0, 8, 40)[i % 3] + i] = i
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("elem", ["u1", "u1<3>", "i8<3>", "u16", "f16<4>", "f64<3x3>", "i64<5>"])
def test_stored_types(device: Device, elem: str) -> None:
    body = f"""
        %p = elem %x, %i : ptr<{elem} global>
        %v = load %p : {elem}
        %q = elem %y, %i : ptr<{elem} global>
        store %q, %v
    """
    fn = read_func(device, loop(f"%x: array<{elem}[?]>, %y: array<{elem}[?]>", body))
    t = fn.params[0].type.elem  # type: ignore[union-attr]
    shape, scalar = getattr(t, "shape", ()), getattr(t, "elem", t)
    x = (np.random.default_rng(3).integers(0, 2, (N, *shape)) * 3).astype(scalar.dtype)
    y = np.zeros_like(x)
    launch(device, fn, {"x": x, "y": y}, {"n": N}, N)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("count", [3, 14, 40])
def test_many_arguments(device: Device, count: int) -> None:
    """Beyond the size of push constants, the block travels in a buffer."""
    names = [f"a{k}" for k in range(count)]
    adds = "".join(
        f"""%p{k} = elem %{name}, %i : ptr<i32 global>
            %o{k} = atomic_add %p{k}, %v{k % 2} : i32
        """
        for k, name in enumerate(names)
    )
    params = ", ".join(f"%{name}: array<i32[?]>" for name in names)
    text = loop(f"{params}, %v0: i32, %v1: i32", adds)
    arrays = {name: ramp(N, dtype=np.int32) + k for k, name in enumerate(names)}
    shader = check(device, text, arrays, {"v0": np.int32(5), "v1": np.int32(-7)})
    assert shader.indirect == (shader.size_bytes > min(256, device.caps.push_constant_bytes))
    assert shader.indirect or count < 40


@pytest.mark.parametrize(
    "name", ["i8", "u8", "i16", "u16", "i64", "u64", "f16", "f64", "u1", "f32"]
)
def test_scalar_arguments(device: Device, name: str) -> None:
    body = f"""
        %p = elem %x, %i : ptr<{name} global>
        store %p, %a
        %q = elem %y, %i : ptr<{name}<3> global>
        store %q, %v
    """
    text = loop(f"%x: array<{name}[?]>, %y: array<{name}<3>[?]>, %a: {name}, %v: {name}<3>", body)
    fn = read_func(device, text)
    dtype = fn.params[2].type.dtype  # type: ignore[union-attr]
    values = {"a": dtype.type(-3 if name[0] in "if" else 1), "v": np.array([1, 0, 3]).astype(dtype)}
    arrays = {"x": np.zeros(N, dtype), "y": np.zeros((N, 3), dtype)}
    check(device, text, arrays, values)


# --- control flow --------------------------------------------------------------------------------


def test_nested_control_flow(device: Device) -> None:
    body = """
        %one = const 1 : i32
        %three = const 3 : i32
        %start = pack %i, %one : i32<2>
        %total, %v = for %zero, %i, %zero, %start : i32, i32<2> {
          ^(%k: i32, %t: i32, %u: i32<2>)
          %km = mod %k, %three : i32
          %is = eq %km, %zero : u1
          %t2, %u2 = if %is : i32, i32<2> {
            %a = add %t, %k : i32
            %w, %c = while %a, %zero : i32, i32 {
              ^(%x1: i32, %c1: i32)
              %more = lt %c1, %three : u1
              yield %more
            } {
              ^(%x2: i32, %c2: i32)
              %d = mul %x2, %three : i32
              %e = add %c2, %one : i32
              yield %d, %e
            }
            yield %w, %u
          } {
            %b = extract %u [1] : i32
            %f = add %b, %k : i32
            %g = insert %u, %f [1] : i32<2>
            yield %t, %g
          }
          yield %t2, %u2
        }
        %s = sum %v : i32
        %r = sub %total, %s : i32
        %p = elem %x, %i : ptr<i32 global>
        store %p, %r
    """
    check(device, loop("%x: array<i32[?]>", body), {"x": np.zeros(N, np.int32)})


def test_branches_with_empty_sides(device: Device) -> None:
    body = """
        %seven = const 7 : i32
        %c = lt %i, %seven : u1
        %p = elem %x, %i : ptr<i32 global>
        %a = if %c : i32 {
          yield %seven
        } {
          yield %i
        }
        %b = if %c : i32 {
          yield %a
        } {
          %d = mul %a, %seven : i32
          yield %d
        }
        %e = if %c : i32 {
          %f = add %b, %seven : i32
          yield %f
        } {
          yield %b
        }
        if %c {
          yield
        } {
          %o1 = atomic_add %p, %seven : i32
          yield
        }
        if %c {
          yield
        } {
          yield
        }
        %o2 = atomic_add %p, %e : i32
    """
    check(device, loop("%x: array<i32[?]>", body), {"x": np.zeros(N, np.int32)})


def test_serial_code(device: Device) -> None:
    text = """func @program(%x: array<f32[?]>, %a: f32) {
      %n = shape %x [0] : i32
      %zero = const 0 : i32
      %t = thread_index : i32
      %g = grid_size : i32
      %s = add %t, %g : i32
      for %zero, %n, %a {
        ^(%k: i32, %v: f32)
        %p = elem %x, %k [inbounds] : ptr<f32 global>
        %w = add %v, %a : f32
        store %p, %w
        yield %w
      }
      %first = elem %x, %s : ptr<f32 global>
      store %first, %a
      yield
    }
    """
    text = text.replace("for %zero, %n, %a {", "%r = for %zero, %n, %a : f32 {")
    check(device, text, {"x": np.zeros(20, np.float32)}, {"a": np.float32(3)})


def test_loop_from_an_offset(device: Device) -> None:
    text = """func @program(%x: array<i32[?]>, %n: i32) {
      %ten = const 10 : i32
      %end = add %n, %ten : i32
      parallel %ten, %end {
        ^(%i: i32)
        %p = elem %x, %i : ptr<i32 global>
        store %p, %i
        yield
      }
      yield
    }
    """
    check(device, text, {"x": np.zeros(200, np.int32)})


# --- private places and components ---------------------------------------------------------------


def test_local_elements(device: Device) -> None:
    body = """
        %one = const 1 : i32
        %three = const 3 : i32
        %first = splat %i : i32<5>
        %a = local %first : ptr<i32<5> local>
        %b = local %first : ptr<i32<5> local>
        %b2 = member %b [2] : ptr<i32 local>
        store %b2, %one
        for %zero, %three {
          ^(%k: i32)
          %m = member_at %a, %k : ptr<i32 local>
          %old = atomic_add %m, %k : i32
          %o2 = atomic_max %b2, %old : i32
          %am = atomic_mul %b2, %three : i32
          %ae = atomic_exchange %m, %am : i32
          %ac = atomic_cas %m, %one, %three : i32
          yield
        }
        %far = member_at %a, %i : ptr<i32 local>
        store %far, %three
        %va = load %a : i32<5>
        %vb = load %b : i32<5>
        %v = add %va, %vb : i32<5>
        %p = elem %x, %i : ptr<i32<5> global>
        store %p, %v
    """
    check(device, loop("%x: array<i32<5>[?]>", body), {"x": np.zeros((N, 5), np.int32)})


@pytest.mark.parametrize("size", [2, 4, 9])
def test_computed_components(device: Device, size: int) -> None:
    numbers = ", ".join(str(float(k * k)) for k in range(size))
    body = f"""
        %table = const [{numbers}] : f32<{size}>
        %two = const 2 : i32
        %k = sub %i, %two : i32
        %t = extract_at %table, %k : f32
        %p = elem %x, %i : ptr<f32<{size}> global>
        %v = load %p : f32<{size}>
        %e = extract_at %v, %k : f32
        %s = add %e, %t : f32
        %w = insert_at %v, %s, %i : f32<{size}>
        store %p, %w
    """
    check(device, loop(f"%x: array<f32<{size}>[?]>", body), {"x": ramp(20, size)}, count=20)


def test_matrix_memory(device: Device) -> None:
    body = """
        %p = elem %x, %i : ptr<f32<2x3> global>
        %a = load %p : f32<2x3>
        %at = transpose %a : f32<3x2>
        %s = matmul %at, %a : f32<3x3>
        %q = elem %y, %i : ptr<f32<3> global>
        %v = load %q : f32<3>
        %w = matmul %s, %v : f32<3>
        %u = outer %w, %v : f32<3x3>
        %t = sum %u : f32
        %f = splat %t : f32<3>
        store %q, %f
    """
    rng = np.random.default_rng(2)
    arrays = {
        "x": rng.integers(-4, 4, (N, 2, 3)).astype(np.float32),
        "y": rng.integers(-4, 4, (N, 3)).astype(np.float32),
    }
    check(device, loop("%x: array<f32<2x3>[?]>, %y: array<f32<3>[?]>", body), arrays)


# --- atomics and workgroups ----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["global", "shared"])
@pytest.mark.parametrize("name", ["i32", "u32", "i64"])
@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
def test_integer_atomics(device: Device, kind: str, name: str, place: str) -> None:
    field = "i64_atomics" if place == "global" else "i64_atomics_shared"
    if name == "i64" and not getattr(device.caps, field):
        pytest.skip("no 64-bit atomics")
    body = f"""
        %three = const 3 : i32
        %k = mod %i, %three : i32
        %q = elem %x, %i : ptr<{name} global>
        %v = load %q : {name}
        %p = elem %y, %k : ptr<{name}<2> global>
        %m = member %p [1] : ptr<{name} global>
        %o = atomic_{kind} %m, %v : {name}
    """
    if place == "shared":
        body = f"""
        %s = shared : array<{name}<2>[3] shared>
        %three = const 3 : i32
        %k = mod %i, %three : i32
        %p = elem %s, %k : ptr<{name}<2> shared>
        %q = elem %x, %i : ptr<{name} global>
        %v = load %q : {name}
        %g = elem %y, %k : ptr<{name}<2> global>
        %old = load %g : {name}<2>
        barrier
        store %p, %old
        barrier
        %m = member %p [1] : ptr<{name} shared>
        %o = atomic_{kind} %m, %v : {name}
        barrier
        %new = load %p : {name}<2>
        store %g, %new
        """
    rng = np.random.default_rng(4)
    low = 0 if name == "u32" else -1000
    count = BLOCK if place == "shared" else N
    arrays = {
        "x": rng.integers(low, 1000, count).astype(name.replace("i", "int").replace("u", "uint")),
        "y": rng.integers(low, 1000, (3, 2)).astype(name.replace("i", "int").replace("u", "uint")),
    }
    attr = f"[{BLOCK}]" if place == "shared" else ""
    text = loop(f"%x: array<{name}[?]>, %y: array<{name}<2>[?]>", body, attr=attr)
    check(device, text, arrays, count=count)


def test_float_atomic_add(device: Device) -> None:
    if not device.caps.f32_atomic_add:
        pytest.skip("no float atomics")
    body = """
        %v = cast %i : f32
        %p = elem %y, %zero : ptr<f32 global>
        %o = atomic_add %p, %v : f32
    """
    check(device, loop("%y: array<f32[?]>", body), {"y": np.ones(2, np.float32)})


@pytest.mark.parametrize("place", ["global", "shared"])
def test_float_sum_by_compare_and_swap(device: Device, place: str) -> None:
    """The shape that legalize gives an atomic that a device lacks."""
    body = f"""
        %s = shared : array<f32[1] shared>
        %c = local_index : i32
        %is = eq %c, %zero : u1
        %sp = elem %s, %zero [inbounds] : ptr<f32 shared>
        %gp = elem %y, %zero : ptr<f32 global>
        if %is {{
          %none = const 0.0 : f32
          store %sp, %none
          yield
        }} {{
          yield
        }}
        barrier
        %p = elem {"%s" if place == "shared" else "%y"}, %zero : ptr<f32 {place}>
        %v = cast %i : f32
        %old = load %p : f32
        %true = const true : u1
        %end, %go = while %old, %true : f32, u1 {{
          ^(%o1: f32, %g1: u1)
          yield %g1
        }} {{
          ^(%o: f32, %g: u1)
          %sum = add %o, %v : f32
          %seen = atomic_cas %p, %o, %sum : f32
          %sb = bitcast %seen : u32
          %ob = bitcast %o : u32
          %again = ne %sb, %ob : u1
          yield %seen, %again
        }}
        barrier
        if %is {{
          %t = load %sp : f32
          %x = atomic_exchange %gp, %t : f32
          yield
        }} {{
          yield
        }}
    """
    if place == "global":
        body = body[: body.rindex("barrier")]
    check(device, loop("%y: array<f32[?]>", body, attr=f"[{BLOCK}]"), {"y": ramp(1)}, count=BLOCK)


@pytest.mark.parametrize("kind", ["add", "max"])
def test_float_atomics_on_a_shared_array_that_is_exchanged(device: Device, kind: str) -> None:
    body = f"""
        %s = shared : array<f32[2] shared>
        %c = local_index : i32
        %one = const 1 : i32
        %is = lt %c, %one : u1
        %p = elem %s, %zero [inbounds] : ptr<f32 shared>
        %q = elem %s, %one [inbounds] : ptr<f32 shared>
        %v = cast %i : f32
        if %is {{
          %none = const 0.0 : f32
          store %p, %none
          %e = atomic_exchange %q, %none : f32
          yield
        }} {{
          yield
        }}
        barrier
        %o = atomic_{kind} %p, %v : f32
        barrier
        %t = load %p : f32
        %g = elem %y, %i : ptr<f32 global>
        store %g, %t
    """
    text = loop("%y: array<f32[?]>", body, attr=f"[{BLOCK}]")
    check(device, text, {"y": ramp(BLOCK)}, count=BLOCK)


def test_shared_memory_and_barrier(device: Device) -> None:
    body = f"""
        %s = shared : array<f32<2>[{BLOCK}] shared>
        %t = local_index : i32
        %size = group_size : i32
        %one = const 1 : i32
        %last = sub %size, %one : i32
        %p = elem %x, %i : ptr<f32<2> global>
        %v = load %p : f32<2>
        %a = elem %s, %t [inbounds] : ptr<f32<2> shared>
        store %a, %v
        barrier
        %back = sub %last, %t : i32
        %b = elem %s, %back : ptr<f32<2> shared>
        %w = load %b : f32<2>
        %far = elem %s, %size : ptr<f32<2> shared>
        store %far, %w
        fence
        store %p, %w
    """
    text = loop("%x: array<f32<2>[?]>", body, attr=f"[{BLOCK}]")
    check(device, text, {"x": ramp(3 * BLOCK, 2)}, count=3 * BLOCK)


def test_invocation_indices(device: Device) -> None:
    body = """
        %a = thread_index : i32
        %b = local_index : i32
        %c = group_index : i32
        %d = group_size : i32
        %e = grid_size : i32
        %v = pack %a, %b, %c, %d, %e : i32<5>
        %p = elem %x, %i : ptr<i32<5> global>
        store %p, %v
    """
    text = loop("%x: array<i32<5>[?]>", body)
    check(device, text, {"x": np.zeros((N, 5), np.int32)})


def test_rows_of_groups(device: Device) -> None:
    """A launch beyond the limit of one dimension takes two."""
    text = loop(
        "%x: array<i32<2>[?]>",
        """
        %c = group_index : i32
        %v = pack %i, %c : i32<2>
        %p = elem %x, %i : ptr<i32<2> global>
        store %p, %v
    """,
    )
    x = np.zeros((5 * BLOCK - 3, 2), np.int32)
    launch(device, read_func(device, text), {"x": x}, {"n": len(x)}, len(x), groups=(2, 3, 1))
    np.testing.assert_array_equal(x[:, 0], np.arange(len(x)))
    np.testing.assert_array_equal(x[:, 1], np.arange(len(x)) // BLOCK)


def test_random_numbers(device: Device) -> None:
    body = """
        %a = random : u32
        %two = const 2 : i32
        %b = for %zero, %two, %a : u32 {
          ^(%k: i32, %o: u32)
          %r = random : u32
          yield %r
        }
        %v = pack %a, %b : u32<2>
        %p = elem %x, %i : ptr<u32<2> global>
        store %p, %v
    """
    text = loop("%x: array<u32<2>[?]>, %.seed: u32", body)
    x = np.zeros((N, 2), np.uint32)
    check(device, text, {"x": x}, {".seed": np.uint32(12345)})
    assert len(np.unique(x)) > 2 * N - 3


@pytest.mark.parametrize("name", ["i32", "u32", "f32"])
@pytest.mark.parametrize("kind", ["add", "min", "max", "mul", "and", "or", "xor"])
def test_subgroup_operations(device: Device, kind: str, name: str) -> None:
    """The elected ones' results, put together, are the result of all."""
    if not device.caps.subgroup_arithmetic or (name == "f32" and kind in ("and", "or", "xor")):
        pytest.skip("no such reduction")
    body = f"""
        %q = elem %x, %i : ptr<{name} global>
        %v = load %q : {name}
        %r = subgroup_{kind} %v : {name}
        %e = subgroup_elect : u1
        %n1 = subgroup_size : i32
        %k = subgroup_index : i32
        %p = elem %y, %i : ptr<{name} global>
        %s = elem %z, %i : ptr<i32<2> global>
        %w = pack %n1, %k : i32<2>
        store %s, %w
        if %e {{
          store %p, %r
          yield
        }} {{
          yield
        }}
    """
    params = f"%x: array<{name}[?]>, %y: array<{name}[?]>, %z: array<i32<2>[?]>"
    fn = read_func(device, loop(params, body, attr=f"[{BLOCK}]"))
    neutral = {"add": 0, "min": 9, "max": 0, "mul": 1, "and": 0xFF, "or": 0, "xor": 0}[kind]
    dtype = np.dtype({"i32": "i4", "u32": "u4", "f32": "f4"}[name])
    x = np.random.default_rng(5).integers(1, 3, BLOCK).astype(dtype)
    if kind == "mul":
        x[:] = 1
        x[::7] = 2
    y, z = np.full(BLOCK, neutral, dtype), np.zeros((BLOCK, 2), np.int32)
    launch(device, fn, {"x": x, "y": y, "z": z}, {"n": BLOCK}, BLOCK)
    combine: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "mul": np.multiply,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    assert combine[kind].reduce(y) == combine[kind].reduce(x)
    assert (z[:, 0] == device.caps.subgroup_size).all()
    assert set(z[:, 1]) == set(range(device.caps.subgroup_size))

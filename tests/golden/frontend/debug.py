import vkchi as ti

OPTIONS = {"debug": True}

field = ti.field(ti.f32, shape=(4, 4), offset=(0, -1))


@ti.kernel
def asserts(n: ti.i32):
    for i, j in ti.ndrange(n, 4):
        assert i + 1 < 3, f"i is {i}"


@ti.kernel
def indexes(x: ti.types.ndarray(dtype=ti.f32, ndim=1), n: ti.i32):
    for i in range(n):
        x[i] = field[2, i]


@ti.kernel
def divides(a: ti.i32, b: ti.i32) -> ti.i32:
    return a // b


@ti.kernel
def adds(a: ti.i32, b: ti.i32) -> ti.i32:
    return a + b


@ti.kernel
def takes_a_component(k: ti.i32) -> ti.i32:
    v = ti.Vector([1, 2, 3])
    return v[k]

import vkchi as ti

x = ti.field(ti.i32, shape=(6, 8))
shifted = ti.field(ti.i32, shape=(6, 8), offset=(-3, 2))


@ti.kernel
def static_axes():
    for i, j in x:
        x[i, j] = i + j


@ti.kernel
def with_offset():
    for i, j in shifted:
        shifted[i, j] = i


@ti.kernel
def given_axes(n: ti.i32, y: ti.types.ndarray(ndim=2)):
    for i, j in ti.ndrange((1, n), y.shape[1]):
        y[i, j] = 0.0


@ti.kernel
def grouped():
    for I in ti.grouped(x):
        x[I] = I[0]


@ti.kernel
def with_step(n: ti.i32):
    for i in range(2, n, 3):
        x[i, 0] = i


@ti.kernel
def serial_axes():
    for k in range(2):
        for i, j in ti.ndrange(3, (1, 4)):
            x[i, j] += k

import vkchi as ti

x = ti.ndarray(ti.f32, 3, needs_grad=True)
y = ti.ndarray(ti.f32, 3, needs_grad=True)

@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2 * x[i]

ti.ad.vjp(double, x, y)

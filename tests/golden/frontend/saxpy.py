import vkchi as ti


@ti.kernel
def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] + y[i]

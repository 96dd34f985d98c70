import vkchi as ti


@ti.kernel
def k(x: ti.types.ndarray(ti.f32, ndim=1)):
    for i in x:
        if x[i] > 3:
            continue
        if x[i] < 0:
            continue
        x[i] = undefined

import vkchi as ti

ti.init()


@ti.kernel
def k(x: ti.types.ndarray(element_dim=1)):
    for i in x:
        x[i] = 1.0


k(ti.ndarray(ti.f32, 4))

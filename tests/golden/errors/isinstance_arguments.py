import vkchi as ti


@ti.kernel
def k(x: ti.f32):
    if ti.static(isinstance(x)):
        pass

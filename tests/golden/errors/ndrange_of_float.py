import vkchi as ti


@ti.kernel
def k(x: ti.f32):
    for i in ti.ndrange(x):
        pass

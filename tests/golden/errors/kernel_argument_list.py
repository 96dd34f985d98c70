import vkchi as ti


@ti.kernel
def k(x: [ti.f32, ti.f32]):
    pass

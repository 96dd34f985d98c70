import vkchi as ti

tex = ti.field(ti.f32, shape=(4, 4))


@ti.kernel
def k(t: ti.types.texture(num_dimensions=2)):
    pass


k(tex)

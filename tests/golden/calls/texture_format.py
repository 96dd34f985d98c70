import vkchi as ti

tex = ti.Texture(ti.Format.rgba8, (4, 4))


@ti.kernel
def k(t: ti.types.rw_texture(num_dimensions=2, fmt=ti.Format.r32f)):
    pass


k(tex)

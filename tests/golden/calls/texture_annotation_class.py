import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k(t: ti.types.texture):
    pass


k(tex)

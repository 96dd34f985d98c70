import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k(t: ti.types.texture(num_dimensions=2)):
    t = 1


k(tex)

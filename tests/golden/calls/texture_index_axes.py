import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k(t: ti.types.texture(num_dimensions=2)):
    for i in range(4):
        colour = t.fetch(i, 0)


k(tex)

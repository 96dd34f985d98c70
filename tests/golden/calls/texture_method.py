import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k(t: ti.types.texture(num_dimensions=2)):
    colour = t.sample(ti.Vector([0.5, 0.5]))


k(tex)

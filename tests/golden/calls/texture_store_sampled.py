import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k(t: ti.types.texture(num_dimensions=2)):
    for i, j in ti.ndrange(4, 4):
        t.store(ti.Vector([i, j]), ti.Vector([1.0, 0.0, 0.0, 1.0]))


k(tex)

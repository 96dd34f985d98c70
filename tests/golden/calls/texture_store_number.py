import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k(t: ti.types.rw_texture(num_dimensions=2, fmt=ti.Format.r32f)):
    for i, j in t:
        t.store(ti.Vector([i, j]), 1.0)


k(tex)

import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k(t: ti.types.rw_texture(num_dimensions=2, fmt=ti.Format.r32f)):
    for i in range(4):
        colour = t.sample_lod(ti.Vector([0.5, 0.5]), 0.0)


k(tex)

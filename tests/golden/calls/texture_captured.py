import vkchi as ti

tex = ti.Texture(ti.Format.r32f, (4, 4))


@ti.kernel
def k() -> ti.f32:
    return tex.fetch(ti.Vector([0, 0]), 0).r


k()

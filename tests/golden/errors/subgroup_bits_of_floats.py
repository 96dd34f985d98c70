import vkchi as ti


@ti.kernel
def k() -> ti.f32:
    x = 0.0
    for i in range(64):
        x = ti.simt.subgroup.inclusive_xor(i * 0.5)
    return x

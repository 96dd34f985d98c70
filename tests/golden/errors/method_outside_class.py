import vkchi as ti


@ti.func
def volume(self):
    return super().volume()


@ti.kernel
def k() -> ti.f32:
    return volume(2.0)

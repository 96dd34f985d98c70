import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))


class settings:
    dx = 0.1


@ti.kernel
def k():
    x[0, 0] = settings.dt

import vkchi as ti


class settings:
    dt = 0.2


@ti.kernel
def k():
    settings.dt = 0.1

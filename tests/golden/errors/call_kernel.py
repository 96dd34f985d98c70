import vkchi as ti


@ti.kernel
def other():
    pass


@ti.kernel
def k():
    other()

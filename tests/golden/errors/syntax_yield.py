import vkchi as ti


@ti.kernel
def k():
    yield 3

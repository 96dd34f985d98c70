import vkchi as ti


@ti.kernel
def k():
    for i in [1, 2, 3]:
        pass

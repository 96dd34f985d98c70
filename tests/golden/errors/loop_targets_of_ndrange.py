import vkchi as ti


@ti.kernel
def k():
    for i in ti.ndrange(4, 4):
        pass

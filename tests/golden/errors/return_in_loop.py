import vkchi as ti


@ti.kernel
def k():
    for i in range(8):
        return

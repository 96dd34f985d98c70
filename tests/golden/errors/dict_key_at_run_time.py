import vkchi as ti


@ti.kernel
def k():
    y = {i: i for i in range(3)}

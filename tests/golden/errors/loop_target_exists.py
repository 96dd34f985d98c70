import vkchi as ti


@ti.kernel
def k():
    i = 5
    for i in range(3):
        pass

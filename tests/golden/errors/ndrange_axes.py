import vkchi as ti


@ti.kernel
def k():
    for i, j in ti.ndrange(2, 3, axes=(1, 1)):
        print(i, j)

import vkchi as ti


@ti.kernel
def k():
    for a, b in ti.static([(1, 2), (3, 4, 5)]):
        pass

import vkchi as ti


@ti.kernel
def k():
    for i in ti.static(range(1000000)):
        pass

import vkchi as ti


@ti.kernel
def k():
    for i in ti.static(range(10**7)):
        pass

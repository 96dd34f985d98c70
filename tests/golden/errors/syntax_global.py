import vkchi as ti


@ti.kernel
def k():
    global total
    total = 1

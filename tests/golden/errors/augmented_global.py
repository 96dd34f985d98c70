import vkchi as ti

total = 0


@ti.kernel
def k():
    total += 1

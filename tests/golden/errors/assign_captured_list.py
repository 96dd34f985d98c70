import vkchi as ti

table = [1, 2]


@ti.kernel
def k():
    table[0] = 1

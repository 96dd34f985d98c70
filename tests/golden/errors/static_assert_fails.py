import vkchi as ti

n = 3


@ti.kernel
def k():
    ti.static_assert(n == 4, f'n is {n}')

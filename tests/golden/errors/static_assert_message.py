import vkchi as ti

N = 3


@ti.kernel
def k():
    ti.static_assert(N % 2 == 0, f"N must be even, and is {N}")

import vkchi as ti


@ti.kernel
def k(s: tuple[int, int]):
    pass

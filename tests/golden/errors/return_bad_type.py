import vkchi as ti


@ti.kernel
def k() -> str:
    return 1

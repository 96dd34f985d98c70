import vkchi as ti


@ti.kernel
class K:
    pass

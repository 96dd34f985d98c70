import vkchi as ti


@ti.kernel
def k():
    def inner():
        pass

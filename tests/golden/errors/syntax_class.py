import vkchi as ti


@ti.kernel
def k():
    class A:
        pass

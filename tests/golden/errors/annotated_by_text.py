import vkchi as ti


@ti.kernel
def k():
    x: "number" = 1.0

import vkchi as ti


@ti.kernel
def k():
    try:
        pass
    except ValueError:
        pass

import vkchi as ti


@ti.kernel
def k() -> ti.Vector:
    return ti.Vector([1, 2])


k()

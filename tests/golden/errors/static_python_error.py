import vkchi as ti

SIZES = {"small": 1}


@ti.kernel
def k() -> ti.i32:
    return ti.static(SIZES["large"])

import vkchi as ti


@ti.kernel
def k() -> ti.i32:
    d = {"mass": 1, "charge": 2}
    return d["weight"]

import vkchi as ti


@ti.func
def f() -> ti.i32:
    return ti.Vector([1, 2])


@ti.kernel
def k():
    y = f()

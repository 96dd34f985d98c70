import vkchi as ti


@ti.func
def f() -> ti.types.vector(3, ti.i32):
    return ti.Vector([1, 2])


@ti.kernel
def k():
    y = f()

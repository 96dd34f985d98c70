import vkchi as ti


@ti.func
def pair() -> (ti.f32, ti.f32):
    return 1.0, 2.0, 3.0


@ti.kernel
def k():
    a, b = pair()

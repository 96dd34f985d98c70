import vkchi as ti


@ti.real_func
def advance(x: ti.ref(ti.f32), dt: ti.f32):
    x += dt


@ti.kernel
def k():
    advance(1.0, 0.1)

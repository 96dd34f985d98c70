import vkchi as ti


@ti.real_func
def advance(x: ti.ref(ti.f32)):
    x += 1.0


@ti.kernel
def k():
    count = 3
    advance(count)

import vkchi as ti


@ti.real_func
def half(x: ti.f32) -> ti.f32:
    y = x * 0.5


@ti.kernel
def k() -> ti.f32:
    return half(3.0)

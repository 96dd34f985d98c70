import vkchi as ti


@ti.func
def area(w, h) -> ti.f32:
    a = w * h


@ti.kernel
def k() -> ti.f32:
    area(1.0, 2.0)
    return 0.0

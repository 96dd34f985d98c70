import vkchi as ti


@ti.func
def scale_by(a):
    return lambda x: a * x


@ti.kernel
def k(n: ti.i32) -> ti.i32:
    double = scale_by(2)
    return double(n)

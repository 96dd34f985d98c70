import vkchi as ti


@ti.kernel
def k(x: ti.f32, n: ti.i32):
    print("{:{}}".format(x, n))

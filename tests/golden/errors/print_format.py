import vkchi as ti


@ti.kernel
def k(x: ti.f32):
    print("x is {:5d}".format(x))

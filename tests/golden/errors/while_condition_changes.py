import vkchi as ti


@ti.func
def take(left: ti.template()):
    left -= 1
    return left > 0


@ti.kernel
def k(n: ti.i32):
    left = n
    while take(left):
        pass

import vkchi as ti


@ti.func
def repeat(n: ti.template()):
    s = 0
    for i in ti.static(range(n)):
        s += i
    return s


@ti.kernel
def k(n: ti.i32) -> ti.i32:
    return repeat(n)

import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    for i in ti.static(range(n)):
        pass

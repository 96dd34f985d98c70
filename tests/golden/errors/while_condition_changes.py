import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    a = 0
    while (a := a + n) < 10:
        pass

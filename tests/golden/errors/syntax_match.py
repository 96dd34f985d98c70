import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    match n:
        case int():
            pass

import vkchi as ti


@ti.kernel
def k(n: ti.i32) -> ti.i32:
    total = 0
    scaled = lambda x: x * total
    for i in range(n):
        total += scaled(i)
    return total

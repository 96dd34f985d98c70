import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    print(f"ranges: {[range(n)]}")

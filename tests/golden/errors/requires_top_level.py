import vkchi as ti


@ti.func(requires_top_level=True)
def step(n: ti.i32):
    for _ in range(n):
        pass


@ti.kernel
def k(n: ti.i32):
    if n > 0:
        step(n)

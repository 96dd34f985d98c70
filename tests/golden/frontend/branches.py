import vkchi as ti

x = ti.field(ti.f32, shape=64)


@ti.func
def clamp(v, low, high):
    if v < low:
        return low
    elif v > high:
        return high
    return v


@ti.kernel
def guards(n: ti.i32):
    for i in range(n):
        if i < 64 and x[i] > 0:
            x[i] = clamp(x[i], 1.0, 2.0)
        x[i] = x[i + 1] if i + 1 < 64 else 0.0


@ti.kernel
def cheap(n: ti.i32) -> ti.i32:
    a = n if n > 3 else 2 * n
    if 0 < a < 10 or n == 4:
        a += 1
    return a

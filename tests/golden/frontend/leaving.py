import vkchi as ti


@ti.func
def first_divisor(n):
    for k in range(2, n):
        if n % k == 0:
            return k
    return n


@ti.kernel
def returning(x: ti.types.ndarray(dtype=ti.i32)):
    for i in x:
        x[i] = first_divisor(i)


@ti.kernel
def breaking(n: ti.i32) -> ti.i32:
    a, steps = n, 0
    while a != 1:
        if steps > 100:
            break
        steps += 1
        if a % 2 == 0:
            a //= 2
            continue
        a = 3 * a + 1
    return steps

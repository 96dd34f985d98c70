import vkchi as ti


@ti.kernel
def prints(x: ti.f32, n: ti.i32):
    print("x", x, f"{x:.2f}", ti.Vector([x, 2 * x]), sep=", ")
    for i in range(n):
        if i % 2 == 0:
            print(i, end=" ")


@ti.kernel
def asserts_nothing_in_release(n: ti.i32):
    assert n < 3, f"n is {n}"

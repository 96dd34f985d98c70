import vkchi as ti

x = ti.field(ti.f32, 40)
a = list(range(40))


@ti.kernel
def k():
    for i in x:
        x[i] = a[i]

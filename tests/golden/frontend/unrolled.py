import vkchi as ti

x = ti.Vector.field(2, ti.f32, shape=(16, 16))


@ti.kernel
def stencil():
    for i, j in x:
        w = [0.25, 0.5, 0.25]
        total = ti.Vector([0.0, 0.0])
        for a, b in ti.static(ti.ndrange((-1, 2), 2)):
            if ti.static(a == b):
                continue
            total += w[a + 1] * x[i + a, j + b]
        x[i, j] = total

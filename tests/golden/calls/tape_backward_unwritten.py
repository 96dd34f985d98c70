import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)
y = ti.field(ti.f32, shape=3, needs_grad=True)

@ti.kernel
def double():
    for i in x:
        y[i] = 2 * x[i]

with ti.ad.Tape() as tape:
    double()
tape.backward({x: 1.0})

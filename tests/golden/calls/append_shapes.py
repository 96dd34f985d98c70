import vkchi as ti

x = ti.Vector.field(2, ti.f32)
ti.root.dynamic(ti.i, 8).place(x)


@ti.kernel
def k():
    x.append(ti.Vector([1.0, 2.0, 3.0]))


k()

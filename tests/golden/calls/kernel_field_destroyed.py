import vkchi as ti

x = ti.field(ti.f32)
fb = ti.FieldsBuilder()
fb.dense(ti.i, 4).place(x)
fb.finalize().destroy()


@ti.kernel
def k():
    for i in x:
        x[i] = 1.0


k()

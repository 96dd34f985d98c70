import vkchi as ti

x = ti.field(ti.f32)
ti.FieldsBuilder().dense(ti.i, 4).place(x)
x[0] = 1.0

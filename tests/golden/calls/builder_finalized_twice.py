import vkchi as ti

x = ti.field(ti.f32)
fb = ti.FieldsBuilder()
fb.dense(ti.i, 4).place(x)
fb.finalize()
fb.finalize()

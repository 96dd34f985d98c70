import vkchi as ti

x = ti.field(ti.f32)
fb = ti.FieldsBuilder()
fb.place(x)
tree = fb.finalize()
tree.destroy()
tree.destroy()

import vkchi as ti

ti.init()
for value in ti.field(ti.f32, shape=3):
    print(value)

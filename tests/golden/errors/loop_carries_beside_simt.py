import vkchi as ti

x = ti.field(ti.f32, 1000)


@ti.kernel
def k():
    s = 0.0
    ti.loop_config(block_dim=64)
    for i in range(1000):
        x[i] = s + ti.simt.subgroup.reduce_add(i * 1.0)
        s = s + 1.0

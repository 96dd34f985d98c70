import vkchi as ti

x = ti.field(ti.i32, 64)


@ti.kernel
def k():
    for i in x:
        x[i] = ti.simt.subgroup.reduce_add_tiled(i, 7)

import vkchi as ti


@ti.kernel
def k() -> ti.i32:
    x = 0
    for i in range(64):
        x = ti.simt.subgroup.reduce_nand(i)
    return x

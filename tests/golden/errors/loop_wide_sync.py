import vkchi as ti


@ti.kernel
def k(n: ti.i64):
    for i in range(n):
        t = ti.simt.block.SharedArray((64,), ti.f32)
        t[ti.i32(i % 64)] = 1.0
        ti.simt.block.sync()

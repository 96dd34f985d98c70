import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    for i in range(64):
        pad = ti.simt.block.SharedArray((n,), ti.f32)
        pad[i] = 1.0

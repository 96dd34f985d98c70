import vkchi as ti


@ti.kernel
def k():
    for i in range(64):
        pad = ti.simt.block.SharedArray((8, 8), ti.f32)
        pad[i] = 1.0

import vkchi as ti


@ti.kernel
def k():
    for i in range(64):
        pad = ti.simt.block.SharedArray((8, 8), "f32")
        pad[i, 0] = 1.0

import vkchi as ti


@ti.kernel
def k():
    ti.loop_config(block_dim=64)
    for i, j in ti.ndrange(65536, 65536):
        a = i + j

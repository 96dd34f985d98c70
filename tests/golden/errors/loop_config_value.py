import vkchi as ti


@ti.kernel
def k():
    ti.loop_config(block_dim=0)
    for i in range(3):
        pass

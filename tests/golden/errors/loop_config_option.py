import vkchi as ti


@ti.kernel
def k():
    ti.loop_config(blockdim=32)
    for i in range(3):
        pass

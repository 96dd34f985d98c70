import vkchi as ti

loss = ti.field(ti.f32, shape=(), needs_grad=True)
x = ti.field(ti.f32, shape=64, needs_grad=True)


@ti.kernel
def run():
    ti.loop_config(block_dim=64)
    for i in range(64):
        shared = ti.simt.block.SharedArray((64,), ti.f32)
        shared[i] = x[i]
        loss[None] += shared[63 - i]


with ti.ad.Tape(loss):
    run()

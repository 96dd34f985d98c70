import vkchi as ti


@ti.func
def take(x: ti.template(), i, most: ti.template()):
    if x[i] > most:
        most = x[i]
    i = 0


@ti.kernel
def largest(x: ti.types.ndarray()) -> ti.f32:
    most = x[0]
    ti.loop_config(serialize=True)
    for i in range(1, x.shape[0]):
        take(x, i, most)
    return most

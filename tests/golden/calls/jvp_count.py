import vkchi as ti

x = ti.ndarray(ti.f32, 3, needs_grad=True)
ti.ad.jvp(lambda x: x, (x, 2), (1.0,))

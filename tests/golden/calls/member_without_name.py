import vkchi as ti

ti.init()
held = {"x": ti.ndarray(ti.f32, 4)}


@ti.kernel
def fill():
    x = held.get("x")
    for i in x:
        x[i] = 1.0


fill()

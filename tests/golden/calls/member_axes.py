import vkchi as ti

ti.init()


@ti.data_oriented
class Model:
    def __init__(self):
        self.parts = [ti.ndarray(ti.f32, (2, 2))]

    @ti.kernel
    def fill(self):
        self.parts[0][1] = 1.0


Model().fill()

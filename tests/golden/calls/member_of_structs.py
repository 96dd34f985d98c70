import vkchi as ti

ti.init()
Body = ti.types.struct(keys=ti.f32)


@ti.data_oriented
class Model:
    def __init__(self):
        self.bodies = Body.ndarray(4)

    @ti.kernel
    def fill(self):
        for i in self.bodies:
            self.bodies[i].keys = 1.0


Model().fill()

import vkchi as ti

x = ti.field(ti.f32, 4)


class Solver:
    def __init__(self):
        self.n = 4

    @ti.kernel
    def run(self):
        x[0] = self.n


Solver().run()

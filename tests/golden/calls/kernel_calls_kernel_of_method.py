import vkchi as ti

x = ti.field(ti.f32, shape=3, needs_grad=True)


@ti.data_oriented
class Solver:
    @ti.kernel
    def clear(self):
        for i in x:
            x[i] = 0.0

    def reset(self):
        self.clear()

    @ti.kernel
    def solve(self):
        self.reset()


Solver().solve()

import vkchi as ti


@ti.dataclass
class Body:
    x: ti.f32

    @ti.func
    def grow(self, by):
        self.x += by


@ti.kernel
def k():
    b = Body(1.0)
    b.grow()

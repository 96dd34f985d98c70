import vkchi as ti


@ti.data_oriented
class Ball:
    def __init__(self):
        self.radius = 1.0

    @ti.func
    def volume(self):
        return self.radius**3


ball = Ball()


@ti.kernel
def k() -> ti.f32:
    return ball.volumes()

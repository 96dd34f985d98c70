import vkchi as ti

Ball = ti.types.struct(radius=ti.f32)


@ti.kernel
def k():
    ball = Ball(1.0)
    ball.raduis = 2.0

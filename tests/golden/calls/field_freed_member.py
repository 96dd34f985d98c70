import vkchi as ti


class Scene:
    def __init__(self):
        self.x = ti.field(ti.f32, 4)

    def first(self):
        return self.x[0]


scene = Scene()
ti.init()
scene.first()

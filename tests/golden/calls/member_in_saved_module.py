import vkchi as ti

ti.init()


@ti.data_oriented
class Model:
    def __init__(self):
        self.x = ti.ndarray(ti.f32, 4)

    @ti.kernel
    def fill(self):
        for i in self.x:
            self.x[i] = 1.0


builder = ti.graph.GraphBuilder()
builder.dispatch(Model().fill)
builder.dispatch(Model().fill)
ti.aot.Module().add_graph("g", builder.compile())

import vkchi as ti


@ti.data_oriented
class Counter:
    def __init__(self):
        self.count = 0

    @ti.func
    def step(self):
        self.count += 1


counter = Counter()


@ti.kernel
def k():
    counter.step()

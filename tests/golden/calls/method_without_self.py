import numpy as np

import vkchi as ti

x = ti.field(ti.f32, 4)


@ti.kernel
def k(n: ti.i32, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in x:
        x[i] = y[i] + n


ok = np.ones(4, np.float32)
@ti.data_oriented
class Grid:
    @ti.kernel
    def clear():
        x.fill(0)


Grid().clear()

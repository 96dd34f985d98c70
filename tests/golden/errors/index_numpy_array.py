import numpy as np

import vkchi as ti

x = ti.field(ti.f32, 4)
a = np.zeros(4, np.float32)


@ti.kernel
def k():
    for i in range(4):
        x[i] = a[i]

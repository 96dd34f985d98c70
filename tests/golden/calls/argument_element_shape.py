import numpy as np

import vkchi as ti

ti.init()


@ti.kernel
def k(x: ti.types.ndarray(dtype=ti.math.vec3)):
    for i in x:
        x[i] = [1.0, 2.0, 3.0]


k(np.zeros((4, 2), np.float32))

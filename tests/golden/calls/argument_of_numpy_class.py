import numpy as np

import vkchi as ti


@ti.kernel
def k(x: np.ndarray):
    pass


k(np.zeros(3))

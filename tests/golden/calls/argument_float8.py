import torch

import vkchi as ti


@ti.kernel
def k(v: ti.types.ndarray()):
    v[0] = 1


k(torch.zeros(4, dtype=torch.float8_e4m3fn))

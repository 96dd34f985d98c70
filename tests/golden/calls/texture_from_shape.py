import numpy as np

import vkchi as ti

tex = ti.Texture(ti.Format.rgba32f, (4, 2))
tex.from_ndarray(np.zeros((4, 2, 3), np.float32))

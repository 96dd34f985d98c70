import numpy as np

import vkchi as ti

tex = ti.Texture(ti.Format.rgba8, (4, 2))
tex.from_ndarray(np.zeros((4, 2, 4), np.int32))

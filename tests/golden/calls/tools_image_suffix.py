import numpy as np

import vkchi as ti

ti.tools.imwrite(np.zeros((4, 4), np.uint8), "never.image")

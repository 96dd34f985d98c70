import vkchi as ti

ti.math.normalise

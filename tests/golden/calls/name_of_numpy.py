import vkchi as ti

ti.zeros(4)

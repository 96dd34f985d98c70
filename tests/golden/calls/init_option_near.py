import vkchi as ti

ti.init(debgu=True)

import vkchi as ti

ti.math.vec3("red")

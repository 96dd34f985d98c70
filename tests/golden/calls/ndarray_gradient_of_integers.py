import vkchi as ti

ti.ndarray(ti.i32, 3, needs_grad=True)

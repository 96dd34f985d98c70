import vkchi as ti

A = ti.types.argpack(n=ti.i32, x=ti.types.ndarray())


@ti.kernel
def k(p: A):
    pass


k(3)

import vkchi as ti

A = ti.types.argpack(n="many")


@ti.kernel
def k(p: A):
    pass


k(A(n=1))

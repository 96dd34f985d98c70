import vkchi as ti

A = ti.types.argpack(n=ti.i32)


@ti.kernel
def k(p: A):
    p.n = 3


k(A(n=1))

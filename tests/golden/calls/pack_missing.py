import vkchi as ti

A = ti.types.argpack(n=ti.i32, x=ti.types.ndarray())
A(n=3)

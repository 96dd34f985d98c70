import vkchi as ti

A = ti.types.argpack(n=ti.i32)
A(n=1.5)

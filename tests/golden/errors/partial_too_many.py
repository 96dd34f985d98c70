import functools

import vkchi as ti


@ti.func
def add(a, b):
    return a + b


add_one = functools.partial(add, 1)


@ti.kernel
def k() -> ti.i32:
    return add_one(2, 3)

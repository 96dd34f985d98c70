import vkchi as ti

@ti.ad.grad_replaced
def f():
    pass


@ti.ad.grad_for(f)
def g():
    pass


@ti.ad.grad_for(f)
def h():
    pass

import vkchi as ti

N = 4


@ti.kernel
def k():
    for i in ti.static(N):
        pass

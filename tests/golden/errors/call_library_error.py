import vkchi as ti


def helper(n):
    return 1 / n


@ti.kernel
def k():
    y = helper(0)

import vkchi as ti

left = ti.field(ti.i32, ())


@ti.kernel
def k():
    while ti.graph.do_while(left):
        pass

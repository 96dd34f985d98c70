import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    n: ti.i32


ARGUMENTS = {"state": State(2**40)}


@ti.kernel
def k(state: State):
    x = state.n

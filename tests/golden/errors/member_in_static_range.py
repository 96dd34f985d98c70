import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    n: int


ARGUMENTS = {"state": State(3)}


@ti.kernel
def k(state: State):
    m = 2 * state.n
    for _ in ti.static(range(m)):
        pass

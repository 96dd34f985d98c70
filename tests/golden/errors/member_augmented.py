import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    n: int


ARGUMENTS = {"state": State(3)}


@ti.kernel
def k(state: State):
    state.n += 1

import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    n: int


ARGUMENTS = {"state": State(2**64)}


@ti.kernel
def k(state: State):
    x = state.n

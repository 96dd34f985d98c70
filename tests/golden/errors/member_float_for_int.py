import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    n: int


ARGUMENTS = {"state": State(2.5)}


@ti.kernel
def k(state: State):
    for _ in range(state.n):
        pass

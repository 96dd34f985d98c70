import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    k: bool


ARGUMENTS = {"state": State(True)}


@ti.kernel
def k(state: State):
    x = [1.0, 2.0][state.k]

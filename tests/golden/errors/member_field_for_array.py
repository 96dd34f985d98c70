import dataclasses

import vkchi as ti


@dataclasses.dataclass
class Links:
    mass: ti.types.NDArray[ti.f32, 1]


@dataclasses.dataclass
class State:
    links: Links


ARGUMENTS = {"state": State(Links(ti.field(ti.f32, 4)))}


@ti.kernel
def k(state: State):
    for i in state.links.mass:
        state.links.mass[i] = 1.0

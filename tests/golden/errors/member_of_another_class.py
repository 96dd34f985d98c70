import dataclasses

import vkchi as ti


@dataclasses.dataclass
class Links:
    mass: ti.types.NDArray[ti.f32, 1]


@dataclasses.dataclass
class State:
    links: Links


ARGUMENTS = {"state": State([1.0])}


@ti.kernel
def k(state: State):
    state.links.mass[0] = 1.0

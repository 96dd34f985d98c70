import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    dt: "ti.f32"


ARGUMENTS = {"state": State([1.0])}


@ti.kernel
def k(state: State):
    x = 2.0 * state.dt

import dataclasses

import vkchi as ti


@dataclasses.dataclass
class State:
    mask: ti.Tensor | None


ARGUMENTS = {"state": State(None)}


@ti.kernel
def k(state: State):
    n = state.mask.shape[0]

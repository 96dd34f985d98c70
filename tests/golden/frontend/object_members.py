import dataclasses
import typing

import vkchi as ti


@dataclasses.dataclass
class Links:
    mass: ti.Tensor
    damping: float = 0.5
    stiff: ti.f64 = 2.0


@dataclasses.dataclass
class State:
    links: Links
    n: int = 3
    big: int = 2**40
    is_on: bool = True
    order: typing.Final[int] = 2
    limit: int | None = None
    count: typing.ClassVar[int] = 7

    @property
    def half(self) -> float:
        return self.links.damping / 2


ARGUMENTS = {"state": State(Links(ti.field(ti.f32, 4)))}


@ti.func
def scaled(state: State, i):
    return state.links.damping * state.links.mass[i] + state.half


@ti.kernel
def numbers(state: State) -> ti.f64:
    total = state.links.stiff
    for _ in range(state.n):
        total += state.big
    if state.is_on and state.limit is None:
        total += state.order + state.count
    return total


@ti.kernel
def arrays(state: State):
    for i in state.links.mass:
        for _ in ti.static(range(state.order)):
            state.links.mass[i] = scaled(state, i)

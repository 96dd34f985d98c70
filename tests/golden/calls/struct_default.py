import vkchi as ti


@ti.dataclass
class Body:
    x: ti.f32 = 1.0

import vkchi as ti

Hit = ti.types.struct(t=ti.f32, index=ti.i32)


@ti.dataclass
class Ray:
    o: ti.math.vec2
    d: ti.math.vec2

    @ti.func
    def at(self, t):
        return self.o + t * self.d

    @ti.func
    def advance(self, t):
        self.o = self.at(t)


@ti.kernel
def branches_and_loops(n: ti.i32) -> Hit:
    best = Hit(100.0, -1)
    ray = Ray(d=[1, 0])
    k = 0
    while k < n:
        ray.advance(0.5)
        if ray.o.x < best.t:
            best = Hit(ray.o.x, k)
        k += 1
    return best


@ti.kernel
def nested() -> ti.f32:
    pair = ti.Struct(a=Ray(o=2), b=Ray())
    pair.a.o.y = 1
    pair.b = pair.a
    pair.a.advance(1.0)
    return pair.b.o.sum()

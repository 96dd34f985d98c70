import vkchi as ti

v = ti.Vector.field(3, ti.f32, shape=8)
m = ti.Matrix.field(2, 2, ti.f32, shape=8)


@ti.kernel
def components():
    for i in v:
        p = v[i]
        p.x += 1
        p.yz = p.zy
        p[i % 3] = 0.0
        v[i] = p
        v[i].z -= v[i][0]
        m[i][0, :] = p.xy
        m[i][i % 2, 1] *= 2

import numpy as np

import vkchi as ti

S = ti.types.struct(a=ti.i32, v=ti.math.vec3)

S.field(shape=3).from_numpy({"a": np.zeros(3)})

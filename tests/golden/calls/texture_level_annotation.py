import vkchi as ti

ti.types.rw_texture(num_dimensions=2, lod=1, fmt=ti.Format.r32f)

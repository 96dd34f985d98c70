import vkchi as ti

ti.Texture(ti.Format.depth24stencil8, (4, 4))

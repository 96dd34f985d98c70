import vkchi as ti

ti.root.dynamic(ti.i, 64, chunk_size=8)

import vkchi as ti

ti.tools.PLYWriter(num_vertices=4).export("never.ply")

import numpy as np

import vkchi as ti

writer = ti.tools.PLYWriter(num_vertices=3, num_faces=1)
writer.add_vertex_pos(np.zeros(3), np.zeros(3), np.zeros(3))
writer.add_faces(np.array([0, 1, 3]))
writer.export("never.ply")

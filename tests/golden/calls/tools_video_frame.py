import tempfile

import numpy as np

import vkchi as ti

with tempfile.TemporaryDirectory() as folder:
    film = ti.tools.VideoManager(folder)
    film.write_frame(np.zeros(3))

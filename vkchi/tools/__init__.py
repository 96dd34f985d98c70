"""`ti.tools`: image and mesh files, read and written; video and grid files, written."""

from vkchi.tools.image import imread, imresize, imshow, imwrite
from vkchi.tools.meshes import Mesh, read_mesh, write_mesh
from vkchi.tools.np2ply import PLYWriter
from vkchi.tools.video import VideoManager, write_video
from vkchi.tools.vtk import write_vtk

__all__ = [
    "Mesh", "PLYWriter", "VideoManager", "imread", "imresize", "imshow", "imwrite", "read_mesh",
    "write_mesh", "write_video", "write_vtk",
]  # fmt: skip

"""`ti.tools`: readers and writers of image, video, mesh and grid files."""

from vkchi.tools.image import imread, imresize, imshow, imwrite
from vkchi.tools.np2ply import PLYWriter
from vkchi.tools.video import VideoManager
from vkchi.tools.vtk import write_vtk

__all__ = [
    "PLYWriter", "VideoManager", "imread", "imresize", "imshow", "imwrite", "write_vtk",
]  # fmt: skip

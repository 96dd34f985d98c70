from vkchi.lang.mesh import MeshInstance

MeshInstance()

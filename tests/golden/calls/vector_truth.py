import vkchi as ti

if ti.Vector([1, 2]):
    print("equal")

import vkchi as ti

ti.tools.VideoManager("never", framerate=0)

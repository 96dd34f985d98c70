import vkchi as ti

ti.set_logging_level("loud")

from vkchi.ui import Window

Window("window", (640, 480))

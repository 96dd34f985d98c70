import vkchi as ti

print(ti.qqqqqq)

from vkchi.types.quant import fixed

fixed(8)

"""Commands of `vkchi`, a module each."""

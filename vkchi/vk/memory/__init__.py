"""Device memory: blocks, spans of them, rings, exports, and the lifetimes of Vulkan objects."""

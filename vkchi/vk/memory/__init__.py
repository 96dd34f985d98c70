"""Device memory: blocks, spans of them, rings, exports."""

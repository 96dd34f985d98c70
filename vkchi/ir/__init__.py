"""CHI IR: types live in `vkchi.types`, everything else about programs here.

Start reading at `core` (the objects), then `ops` (the op table), `text` (how it looks).
"""

"""CHI IR: ops, the op table, builder, text form, verifier and reference interpreter.

Start reading at `core` (the objects), then `ops` (the op table) and `text` (the text form). Types
are in `vkchi.types`.
"""

"""Values and functions of the language: vectors, structs, elementwise functions, namespaces.

See docs/design.md part 1.
"""

from vkchi.hooks import open_names

open_names(globals())

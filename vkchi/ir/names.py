"""Names of the parameters that vkchi adds to those of a kernel.

What users name is made of words with single dots between: `x`, `ball.pos`, `parts.0`, `x.grad`. A
name here begins with a dot, or has two in a row; so none is ever both. Must not know: Funcs.

    >>> SCRATCH + "0", "x" + ADJOINT
    ('.scratch.0', 'x..adjoint')
"""

# These are followed by a number.
TEMP = ".temp."  # what one dispatch hands to the next
SCRATCH, SAVE, REPLAY = ".scratch.", ".save.", ".replay."  # copies, values that are kept, numbers
HIDDEN = (SCRATCH, SAVE, REPLAY)  # arrays that only their kernel sees
NOTED = ".noted"  # an element for each access that notes something
COUNT, WIDTH = ".count.", ".width."  # how often loops go round

# These follow the name of an array.
ADJOINT, DUAL = "..adjoint", "..dual"
MARKS, READ = "..marks", "..read"  # of its elements: which were stored, or read

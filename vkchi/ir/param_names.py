"""Names of the parameters that passes add to a kernel's own.

User names are words with single dots between: `x`, `ball.pos`, `parts.0`, `x.grad`. Names here
begin with a dot or contain two in a row, so the two sets are disjoint.

    >>> SCRATCH + "0", "x" + ADJOINT
    ('.scratch.0', 'x..adjoint')
"""

# Prefixes, followed by a number.
TEMP = ".temp."  # temporaries passed between dispatches
SCRATCH, SAVE, REPLAY = ".scratch.", ".save.", ".replay."  # copies, saved values, replay logs
HIDDEN = (SCRATCH, SAVE, REPLAY)  # arrays private to their kernel
NOTED = ".noted"  # one element per access that records something
COUNT, WIDTH = ".count.", ".width."  # trip counts of loops

# Suffixes of an array's name.
ADJOINT, DUAL = "..adjoint", "..dual"
MARKS, READ = "..marks", "..read"  # shadow arrays: elements that were stored, or read

"""Tuning constants: limits and costs by which passes, analyses and launches choose code.

They decide how fast code is, never what it computes. Limits of proofs, which keep an argument
valid, are beside the proof; so are search limits of analyses. Pairs are for (CPUs, GPUs):
`Caps.choose` picks one. A number without a unit counts ops, loads or iterations, as its comment
says.

    tuning.JAM_FACTORS
    caps.choose(tuning.GROUPS)
"""

from __future__ import annotations

# --- workgroups ----------------------------------------------------------------------------------

BLOCK = 128  # default size of a workgroup
LEAST_EXACT_BLOCK = 32  # a smaller workgroup costs more than the guard that it saves
MOST_EXACT_BLOCK = 256
GROUPS = (64, 512)  # workgroups that saturate a device
SPARE = 8  # a CPU is saturated by 1 / SPARE of the invocations if they run long
LISTED_THREADS = (1024, 8192)  # most invocations of a reduction over an active list
LISTED_BLOCK = 64  # most invocations of a workgroup of a loop over an active list
TILE_ROW, TILE_SIDE = BLOCK, 16  # invocations along x; along both axes of a square tile
TILE_GUARD = 0.02  # cost of a guard, as a share of invocations
TILE_ROWS = 0.1  # cost of several rows in a workgroup: row values are not uniform
TILE_DEVIATION = 0.03  # cost of a row or workgroup of twice or half the best length
TILE_WORST = 1.5  # most invocations, relative to one row; beyond, division by one axis is better
UNKNOWN_EXTENT = 1 << 20  # assumed
FITTING_IDLE = 2.0  # invocations per iteration from which a launch selects another tile

# --- loops partitioned among few invocations -----------------------------------------------------

SHARE_ITERATIONS = 4  # least iterations per invocation
SHARE_LIGHT = 2048  # light iterations from which a loop is partitioned
LIGHT_SCALARS = 160  # computed by an iteration that costs no more than its start
LIGHT_ITERATIONS, LIGHT_GROUPS = 8, 16  # least iterations of an invocation, and workgroups
SHARE_BLOCK = 32  # most invocations of a workgroup of a CPU
SHARE_ROW = 8  # least iterations per invocation in a row, to partition rows
SHARE_STRIP = 4  # least iterations per invocation in a strip
COARSEN_STRIP = 4  # least iterations of a strip, if known at compile time
WIDE_INVOCATIONS = 1 << 16  # of a loop with a 64-bit index
LANES_ITERATIONS = 3  # iterations of a loop in serial code, for each lane that shares it

# --- run time against compile time ---------------------------------------------------------------

# Run time saved, times LAUNCHES, is compared with the driver's compile time for more code. In
# nanoseconds of CPU time, measured by `benchmarks/everyday.py` on lavapipe.
LAUNCHES = 200  # assumed launches of a kernel that matters
COMPILE_DISPATCH, COMPILE_OP = 5e6, 8e4  # another dispatch, and an op in it
COMPILE_WORD = 3e6  # a lane's access to a word
RUN_OP = 0.01  # per iteration; guards cost as much per op
RUN_ITERATION = 0.25  # of a lane's loop
RUN_ALONE = 20.0  # an iteration that is alone in its memory line
RUN_ATOMIC = 3.0  # an atomic float addition on a CPU
RUN_LOAD = 0.2  # of a lane
RUN_EXPANDED = 2.0  # a scalar stored by one loop and loaded by the next

# Specialization for shapes, in nanoseconds. Measured on the programs of `benchmarks/shapes.py`. The
# value for GPUs is derived from memory bandwidth.
COMPILE_SHAPE = 5e7  # most of it in Mesa's lavapipe
COMPILE_SHAPE_WORD = 2.5e4  # the same of large kernels, per word of SPIR-V
RUN_SCALAR = (2.0, 0.02)  # a launch, per scalar of its arrays
OPS_PER_SCALAR = 50  # ops that count as a scalar
SHAPE_SCALARS = 2048  # least scalars of a launch; below, launch overhead dominates
MOST_SHAPES = 4  # specialized shapes per executable
MOST_SHAPES_COUNTED = 64  # shapes with a counter at a time
MERGED_LAUNCHES = 16  # most launches per merged dispatch

# --- loop transformations ------------------------------------------------------------------------

FUSE_SHARED = 64  # accesses of a fused loop; drivers' compile time grows superlinearly
FUSE_DISJOINT = 16  # accesses of fused loops without a common array
LARGE_TENSOR = 64  # components; ops on larger tensors are loops over rows
STRAIGHT_TENSOR = 1024  # components or products that remain straight code
LONG_ROW, PART_OF_ROW = 64, 16  # longest row of a matrix in one piece, else the longest piece
REROLL_GROUPS, REROLL_OPS = 32, 512  # least repetitions, and ops that they have together
REROLL_LOOPS, REROLL_LOOP_OPS = 4, 128  # the same, if each contains a loop
REROLL_PRIVATE = 4096  # scalars of private arrays of a rolled loop
FISSION_ACCESSES, FISSION_PART = 512, 256  # accesses of a loop that is cut, and of a part
FISSION_RECOMPUTED = 24  # ops
SPLIT_RECOMPUTED = 64  # ops; a value that takes more is spilled to a temporary

COLLAPSE_TRIPS = 8  # least iterations of a serial loop that becomes an axis
COLLAPSE_REPEATED = 8  # ops before the loops of a nest, which run once per iteration afterwards

PEEL_EDGE = 16  # widest edge, in iterations
PEEL_OPS = 200  # of a body, which is duplicated

GATHER_OPS = 16  # recomputed ops that an eliminated atomic repays on GPUs
GATHER_BEYOND = 4  # iterations beyond a limit that update one element
GATHER_SHARING = 4  # iterations that share a subscript, per axis
EXPAND_BYTES = 1 << 27  # total size of the temporary arrays of a loop
CUT_STORE, CUT_LOAD, CUT_FLOAT, CUT_INTEGER = 8.0, 1.0, 0.1, 0.02  # in loads; integers fold
CUT_OPS = 1024  # in a loop; a cut takes time quadratic in that

REDUCTION_ITERATIONS = 256  # fewer do not repay a loop
REDUCTION_WORK = (8, 2)  # least iterations per invocation of a long reduction
BIN_ATOMICS = (16, 4)  # atomics per element from which bins are profitable
BIN_BYTES = 8192  # of bins in a workgroup: more reduce occupancy
COMBINE_ATOMICS = 4  # scalars of atomics in a kernel: each grows to four times the code

JAM_FACTORS = (4, 2)
JAM_UNIFORM = 0.25  # cost of a uniform load on CPUs, relative to one that each lane executes
JAM_LOAD = 16  # ops that cost as much as a load
JAM_GAIN = 0.1  # of an iteration's cost, from which groups are twice as long
JAM_CARRIED = 16  # scalars that a jammed loop carries in registers
JAM_OPS = 64  # of a body, which is copied `factor` times, and once for the remainder
JAM_STRAIGHT_OPS = 40  # of straight-line code
JAM_WORD_OPS = 100  # of straight-line code on CPUs, at a factor of two
JAM_WORDS = 4  # of each array at once; more were not faster

CACHE_LINE = 64  # bytes, of CPUs; the second cache and its ways; pages with known addresses
CACHE_BYTES, CACHE_WAY, PAGE, PAGES = 1 << 20, 1 << 17, 4096, 2048
# Iterations of a strip of an axis that rivals the lanes'; a line for each fills half of the first
# cache.
RIVAL_STRIP, LEAST_RIVAL_STRIP = 256, 16

UNROLL_FACTOR = 4
UNROLL_OPS = 32  # of a body, which is emitted five times
UNROLL_LOADED = 8  # scalars loaded per iteration; bounds register pressure
UNROLL_WORD_OPS = 160  # of all iterations of a group
WORDS_TO_SHARED = 1.5  # accesses that words must save for each load that lanes could share
UNROLL_GUARDED = 8  # most iterations of a loop with branches
UNROLL_SUM_ITERATIONS = 64  # each needs its own registers
UNROLL_SUM_OPS = 1024  # of all iterations; bounds compile time
UNROLL_LOAD_SCALARS = 128  # that a CPU invocation keeps in registers or spills
UNROLL_LOAD_OPS = 1024  # growth of a dispatch by full unrolling of short loops
UNROLLED_OPS = 600, 1000  # of all iterations of a loop that Mesa unrolls to long code
GROUP_OPS = 256  # of its iterations that are executed together
# Trip counts up to which drivers unroll a loop: GPUs' (constant), CPUs' (fully), Mesa's (at all).
DRIVERS_UNROLL, CPUS_UNROLL, MESA_UNROLLS = 8, 4, 32

COMMONING_CARRIED = 8  # scalars that a loop carries for reuse
COOPERATIVE_OPS = 64  # of a body, which is emitted three times
COOPERATIVE_OPS_PER_LOAD = 16  # of a larger body, for each cooperative load
COOPERATIVE_RATIO = 3  # most scalars that an iteration accesses, per cooperative one
COOPERATIVE_COMPARED = 4  # values that lanes compare at run time
COOPERATIVE_LOADS = 2  # uniform loads per lane from which they are cooperative
SPECULATED_LOADS = 4  # most loads that leave the branches of a loop

# --- branches and memory -------------------------------------------------------------------------

FLATTEN_OPS = 6  # without constants, that may run unconditionally
PREDICATE_LOADS, PREDICATE_OPS = 4, 16  # in both regions
PROMOTE_ACCESSES = 3  # least accesses of an element for a gain
VECTOR_DISTANCE = 128  # ops between merged accesses; bounds register pressure
VECTOR_WORDS = (8, 4)  # bytes per word
LANE_WORD = 8  # bytes that a CPU lane loads in one access
STORES_WAITING = 8  # most stores that wait at once

# --- nesting that drivers compile ----------------------------------------------------------------

DEEPEST_NESTING = 48  # constructs around an op; gradient code adds more
DRIVERS_NESTING = 72  # constructs around an op that drivers support; more is an error
LEAST_NESTING = 4  # constructs that may nest even inside that many loops

"""`ti.graph`: sequences of kernels that are built once and run by one call, as in Taichi.

Example:

    >>> builder = ti.graph.GraphBuilder()
    >>> x = ti.graph.Arg(ti.graph.ArgKind.NDARRAY, "x", ti.f32, ndim=1)
    >>> builder.dispatch(step, x)
    >>> builder.compile().run({"x": array})
"""

from vkchi.graph.graph_arguments import Arg, ArgKind
from vkchi.graph.graph_builder import Graph, GraphBuilder, Sequential
from vkchi.graph.record import Record, record
from vkchi.lang.compile_time import do_while, parallel, parallel_context

__all__ = [
    "Arg",
    "ArgKind",
    "Graph",
    "GraphBuilder",
    "Record",
    "Sequential",
    "do_while",
    "parallel",
    "parallel_context",
    "record",
]

"""Grids divided over processes, on torch.distributed: one device per process."""

from vkchi.distributed.exchange import Exchange
from vkchi.distributed.grids import Grid
from vkchi.distributed.group import barrier, finalize, init, rank, size
from vkchi.distributed.particles import Particles

__all__ = ["Exchange", "Grid", "Particles", "barrier", "finalize", "init", "rank", "size"]

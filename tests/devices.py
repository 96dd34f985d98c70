"""Devices that are taken for others, so that what is compiled for those runs on the one at hand."""

from __future__ import annotations

from vkchi.target.caps import Caps

FEW_GROUPS = (5, 3, 2)  # workgroups along x, y and z, so that small loops take several dispatches


def like_gpu(caps: Caps) -> Caps:
    """Capabilities by which loops are mapped as for a graphics card. Operations of subgroups stay:
    they know the true size."""
    return caps._replace(kind="discrete", subgroup_size=32, workgroup_count=FEW_GROUPS)

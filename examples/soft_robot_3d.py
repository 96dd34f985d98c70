"""A soft robot on four legs learns to walk, in three dimensions: see soft_robot.py.

python examples/soft_robot_3d.py [--rounds N]
"""

from __future__ import annotations

import learning
from soft_robot import Robot


def make_robot() -> Robot:
    return Robot(dim=3, cells=16, steps=100, spacing=0.033)


if __name__ == "__main__":
    learning.run(make_robot, "soft robot, 3-D", res=400, rounds=12, goal=-0.25, background=0x18202A)

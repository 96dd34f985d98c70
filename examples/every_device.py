"""Run one program on every Vulkan device of the machine, and compare results and times.

Bodies on an ellipse attract each other. Results are compared with those of the first device that
runs the program. For other devices the error is printed. The exit status is 1 if results differ.

    python examples/every_device.py [--bodies 1024] [--steps 20]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vkchi as ti
from vkchi.device import list_devices

DT, SOFTENING = 1e-3, 0.05


@ti.kernel
def step(x: ti.types.ndarray(), v: ti.types.ndarray()):
    for i in x:
        force = ti.Vector([0.0, 0.0])
        for j in range(x.shape[0]):
            d = x[j] - x[i]
            force += d / (d.norm_sqr() + SOFTENING)
        v[i] += DT * force
    for i in x:
        x[i] += DT * v[i]


def run(bodies: int, steps: int) -> tuple[np.ndarray, float]:
    """Positions after `steps` + 1 steps on the current device, and the seconds per step."""
    angles = np.linspace(0, 2 * np.pi, bodies, endpoint=False)
    ring = np.stack([np.cos(angles), 0.5 * np.sin(angles)], 1).astype(np.float32)
    x, v = (ti.Vector.ndarray(2, ti.f32, bodies) for _ in range(2))
    x.from_numpy(ring)
    v.fill(0)
    step(x, v)  # compile first
    ti.sync()
    began = time.perf_counter()
    for _ in range(steps):
        step(x, v)
    ti.sync()
    return x.to_numpy(), (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bodies", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    found = []
    for info in list_devices():
        try:
            with ti.device(info.index):
                places, seconds = run(options.bodies, options.steps)
        except RuntimeError as e:
            print(f"{info.index}: {info.name}: {e}")
            continue
        found.append(places)
        apart = abs(places - found[0]).max()
        print(
            f"{info.index}: {info.name}: {1e3 * seconds:.2f} ms a step, {apart:.1e} from the first"
        )
    agree = sum(abs(places - found[0]).max() < 1e-3 for places in found)
    print(f"{agree} of {len(found)} devices agree")
    if not found or agree < len(found):
        raise SystemExit("the devices disagree" if found else "no device ran it")


if __name__ == "__main__":
    ti.init()
    main()

"""Python loads this file at its start, from PYTHONPATH: `scripts/as-system` sets both variables."""

import os

if os.environ.get("EMULATED_SYSTEM"):
    import emulation

    emulation.begin_with_vkchi(os.environ["EMULATED_SYSTEM"])

"""SPIR-V emission: turns one split Func into one Shader.

>>> emit(fn, grid, caps, "advect.0").needs
('signed_zero_inf_nan_f32',)
"""

from vkchi.spirv.dispatch import emit

__all__ = ["emit"]

"""Wrong uses of textures: one clear error each."""

import numpy as np
import pytest

import vkchi as ti

pytestmark = pytest.mark.ours("textures-on-cpu", run=False)
F = ti.Format


def texture_kernel(annotation, call):
    @ti.kernel
    def run(t: annotation):
        call(t)

    return run


SAMPLED = ti.types.texture(num_dimensions=2)
STORAGE = ti.types.rw_texture(num_dimensions=2, fmt=F.r32f)
WRONG = {
    "store is for": (SAMPLED, lambda t: t.store(ti.Vector([0, 0]), ti.Vector([0.0] * 4))),
    "sample_lod` is for": (STORAGE, lambda t: t.sample_lod(ti.Vector([0.0, 0.0]), 0.0)),
    "2 axes: an index of 2": (SAMPLED, lambda t: t.fetch(ti.Vector([0, 0, 0]), 0)),
    "counted in integers": (SAMPLED, lambda t: t.fetch(ti.Vector([0.5, 0.5]), 0)),
    "level 0 only": (SAMPLED, lambda t: t.fetch(ti.Vector([0, 0]), 1)),
    "vector of 4": (STORAGE, lambda t: t.store(ti.Vector([0, 0]), 1.0)),
    "no attribute `sample`": (SAMPLED, lambda t: t.sample(ti.Vector([0.0, 0.0]))),
    "coordinates of 2": (SAMPLED, lambda t: t.sample_lod(0.5, 0.0)),
    "fetch()": (SAMPLED, lambda t: t.fetch(ti.Vector([0, 0]))),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_uses_in_kernels(words):
    annotation, call = WRONG[words]
    with pytest.raises(ti.TaichiCompilationError) as error:
        texture_kernel(annotation, call)(ti.Texture(F.r32f, (2, 2)))
    assert words.replace("store is", "`store` is") in str(error.value)


REFUSED = {
    "2 axes is needed": lambda k: k(ti.Texture(F.r32f, (2, 2, 2))),
    "Format.r32f is needed": lambda k: k(ti.Texture(F.rgba8, (2, 2))),
    "a ti.Texture is needed": lambda k: k(np.zeros((2, 2), np.float32)),
    "1 to 3 axes": lambda k: ti.Texture(F.r32f, (2, 2, 2, 2)),
    "a format such as": lambda k: ti.Texture("r32f", (2, 2)),
    "shape (2, 2) is needed": lambda k: ti.Texture(F.r32f, (2, 2)).from_ndarray(np.zeros(3)),
    "or floats": lambda k: ti.Texture(F.r32f, (2,)).from_ndarray(np.zeros(2, np.int32)),
    "takes a field": lambda k: ti.Texture(F.r32f, (2, 2)).from_field(np.zeros((2, 2))),
    "ti.Format.rgba8": lambda k: ti.Texture(F.rgba32f, (2, 2)).to_image(),
    "is 1, 2 or 3": lambda k: ti.types.texture(num_dimensions=4),
    "fmt is a format": lambda k: ti.types.rw_texture(num_dimensions=2),
}


@pytest.mark.parametrize("words", REFUSED)
def test_wrong_uses_in_python(words):
    kernel = texture_kernel(STORAGE, lambda t: None)
    with pytest.raises(TypeError) as error:
        REFUSED[words](kernel)
    assert words in str(error.value)


def test_missing_mip_level_raises():
    with pytest.raises(ti.Unsupported, match="level 0"):
        ti.types.rw_texture(num_dimensions=2, fmt=F.r32f, lod=1)

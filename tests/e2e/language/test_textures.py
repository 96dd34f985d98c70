"""Textures: contents, formats, accesses, against numpy (Taichi: on Vulkan alone)."""

import itertools

import numpy as np
import pytest

import vkchi as ti

pytestmark = pytest.mark.ours("textures-on-cpu", run=False)
F = ti.Format
RNG = np.random.default_rng(8)
vec4s = ti.types.ndarray(dtype=ti.math.vec4, ndim=1)

# format -> numbers of a channel from 0 to most, bits of a float, or None for signed integers
UNORM = {"r8": 255, "rg8": 255, "rgba8": 255, "bgra8": 255, "r16": 65535, "rgba16": 65535,
         "rgb16": 65535, "depth16": 65535}  # fmt: skip
FLOAT = {"r16f": 16, "rg16f": 16, "rgb16f": 16, "rgba16f": 16, "r32f": 32, "rg32f": 32,
         "rgb32f": 32, "rgba32f": 32, "depth32f": 32}  # fmt: skip
INT = {"r8u": (0, 255), "rgba8i": (-128, 127), "r16u": (0, 65535), "rg16i": (-32768, 32767),
       "rgb32i": (-(2**31), 2**31 - 128), "r32u": (0, 2**32 - 256)}  # fmt: skip


def channels(name):
    return 1 if name.startswith("depth") else len(name.rstrip("0123456789uif"))


def full(values, count):
    """Colours as accesses give them: missing channels are 0, alpha 1."""
    found = np.zeros((*values.shape[:-1], 4), np.float32)
    found[..., 3] = 1
    found[..., :count] = values[..., :count]
    return found


def filled(name, shape, values):
    """A texture of 32-bit floats whose texel (x, y, z) is values[x, y, z]."""
    tex = ti.Texture(getattr(F, name), shape)
    inner = values.shape[len(shape) :]
    order = tuple(reversed(range(len(shape)))) + tuple(range(len(shape), values.ndim))
    tex.from_ndarray(values.transpose(order).reshape(*shape[::-1], *inner).astype(np.float32))
    return tex


def fetched(tex):
    """Every texel, f32[x, y, z, 4]."""
    n = tex.num_dims
    out = np.zeros((int(np.prod(tex.shape)), 4), np.float32)
    index = np.array(list(np.ndindex(*tex.shape)), np.int32)

    @ti.kernel
    def run(t: ti.types.texture(num_dimensions=n), k: ti.types.ndarray(), o: vec4s):
        for i in o:
            place = ti.Vector([k[i, a] for a in ti.static(range(n))])
            o[i] = t.fetch(place, 0)

    run(tex, index, out)
    return out.reshape(*tex.shape, 4)


def sampled(tex, uv):
    n = tex.num_dims
    out = np.zeros((len(uv), 4), np.float32)

    @ti.kernel
    def run(t: ti.types.texture(num_dimensions=n), u: ti.types.ndarray(), o: vec4s):
        for i in o:
            o[i] = t.sample_lod(ti.Vector([u[i, a] for a in ti.static(range(n))]), 0.0)

    run(tex, uv.astype(np.float32), out)
    return out


def blended(values, uv):
    """Linear filtering with repetition, in 64 bits."""
    shape = values.shape[:-1]
    out = np.zeros((len(uv), values.shape[-1]))
    for k, point in enumerate(uv.astype(np.float32).astype(float)):
        place = point * shape - 0.5
        low = np.floor(place).astype(int)
        for corner in itertools.product((0, 1), repeat=len(shape)):
            weights = np.where(corner, place - low, 1 - (place - low))
            index = tuple((low + corner) % shape)
            out[k] += weights.prod() * values[index]
    return out


# --- contents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4)])
def test_arrays_are_taken_in_the_order_of_memory(shape):
    values = RNG.random(shape, np.float32)
    tex = ti.Texture(F.r32f, shape)
    tex.from_ndarray(values)
    expected = values.reshape(shape[::-1]).T  # x runs fastest
    assert np.array_equal(fetched(tex)[..., 0], expected)


def test_an_array_of_height_and_width():
    values = RNG.random((3, 5), np.float32)
    tex = ti.Texture(F.r32f, (5, 3))
    tex.from_ndarray(values)
    assert np.array_equal(fetched(tex)[..., 0], values.T)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_vector_ndarrays(count):
    values = RNG.random((4, 4, count), np.float32)
    source = ti.Vector.ndarray(count, ti.f32, (4, 4))
    source.from_numpy(values)
    tex = ti.Texture(getattr(F, {2: "rg32f", 3: "rgb32f", 4: "rgba32f"}[count]), (4, 4))
    tex.from_ndarray(source)
    assert np.array_equal(fetched(tex), full(values.transpose(1, 0, 2), count))


@pytest.mark.parametrize("layout", [ti.Layout.AOS, ti.Layout.SOA])
def test_vector_fields(layout):
    values = RNG.random((4, 4, 4), np.float32)
    source = ti.Vector.field(4, ti.f32, shape=(4, 4), layout=layout)
    source.from_numpy(values)
    tex = ti.Texture(F.rgba32f, (4, 4))
    tex.from_field(source)
    assert np.array_equal(fetched(tex), values.transpose(1, 0, 2))


def test_a_scalar_field():
    source = ti.field(ti.f32, shape=(3, 3))
    source.from_numpy(np.arange(9, dtype=np.float32).reshape(3, 3))
    tex = ti.Texture(F.r32f, (3, 3))
    tex.from_field(source)
    assert fetched(tex)[1, 2].tolist() == [7.0, 0.0, 0.0, 1.0]


def test_bytes_are_taken_as_they_are(lacks):
    if lacks("u8"):
        pytest.skip("no bytes here")
    values = RNG.integers(0, 256, (3, 3, 4)).astype(np.uint8)
    tex = ti.Texture(F.rgba8, (3, 3))
    tex.from_ndarray(values)
    assert np.allclose(fetched(tex), values.transpose(1, 0, 2) / 255, rtol=0, atol=1e-6)


def test_a_new_texture_is_zero():
    assert not fetched(ti.Texture(F.rgba8, (2, 2))).any()


def test_facts_of_a_texture():
    tex = ti.Texture(F.rgba8, (4, 8))
    assert (tex.fmt, tex.shape, tex.num_dims) == (F.rgba8, (4, 8), 2)
    assert "rgba8" in repr(tex)
    assert F.rgba8.name == "rgba8" and F.r32f.value == 37


# --- images --------------------------------------------------------------------------------------


def test_image_textures():
    image = pytest.importorskip("PIL.Image")
    pixels = RNG.integers(0, 256, (3, 5, 3)).astype(np.uint8)
    tex = ti.Texture(F.rgba8, (5, 3))
    tex.from_image(image.fromarray(pixels))
    expected = pixels[:, ::-1].transpose(1, 0, 2) / 255
    assert np.allclose(fetched(tex)[..., :3], expected, rtol=0, atol=1e-6)
    assert not fetched(tex)[..., 3].any()
    again = tex.to_image()
    assert again.mode == "RGB" and again.size == (5, 3)
    assert np.array_equal(np.asarray(again), pixels)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_images_of_other_modes(mode):
    image = pytest.importorskip("PIL.Image")
    pixels = np.asarray([[0, 255], [255, 0]], np.uint8)
    source = image.fromarray(pixels).convert(mode)
    tex = ti.Texture(F.rgba8, (2, 2))
    tex.from_image(source)
    assert np.array_equal(np.asarray(tex.to_image()), np.asarray(source.convert("RGB")))


# --- storing and loading, by format --------------------------------------------------------------


def stored(name, colours):
    """Results of load and fetch after these colours were stored."""
    fmt, out = getattr(F, name), np.zeros((2, len(colours), 4), np.float32)
    tex = ti.Texture(fmt, (len(colours),))

    @ti.kernel
    def store(t: ti.types.rw_texture(num_dimensions=1, fmt=fmt, lod=0), c: vec4s):
        for i in c:
            t.store(i, c[i])

    @ti.kernel
    def load(t: ti.types.rw_texture(num_dimensions=1, fmt=fmt), o: vec4s):
        for i in o:
            o[i] = t.load(ti.Vector([i]))

    @ti.kernel
    def fetch(t: ti.types.texture(num_dimensions=1), o: vec4s):
        for i in o:
            o[i] = t.fetch(i, 0)

    store(tex, colours)
    load(tex, out[0])
    fetch(tex, out[1])
    assert np.array_equal(out[0], out[1])
    return out[0]


def colours_for(low, high):
    values = RNG.uniform(low, high, (24, 4)).astype(np.float32)
    values[0], values[1], values[2] = 0, 1, [high, low, -0.0, 0.5]
    return values


@pytest.mark.parametrize("name", UNORM)
def test_fractions_round_to_the_nearest(name):
    most, values = UNORM[name], colours_for(-0.5, 1.5)
    found, count = stored(name, values), channels(name)
    ticks = found.astype(float) * most
    exact = full(np.clip(values, 0, 1), count).astype(float) * most
    assert np.abs(ticks - np.rint(ticks)).max() < 0.02  # in f32: 65535 ticks are 0.004 apart
    assert np.abs(ticks - exact).max() < 0.52


def test_fractions_that_are_no_numbers():
    values = np.array([[np.nan, np.inf, -np.inf, 0.5]], np.float32)
    assert np.allclose(stored("rgba8", values), [[0, 1, 0, 128 / 255]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", FLOAT)
def test_float_textures(name, lacks):
    values = colours_for(-100, 100)
    is_half = FLOAT[name] == 16 and not lacks("f16")
    expected = values.astype(np.float16).astype(np.float32) if is_half else values
    tolerance = 1e-3 if is_half else 0  # a device may round halves either way
    assert np.allclose(stored(name, values), full(expected, channels(name)), rtol=tolerance)


@pytest.mark.parametrize("name", INT)
def test_integers_are_cut_and_clipped(name):
    low, high = INT[name]
    values = colours_for(-300, 300)
    values[3], values[4] = 1e20, -1e20
    expected = np.clip(np.trunc(values.astype(float)), low, high)
    assert np.array_equal(stored(name, values), full(expected, channels(name)))


@pytest.mark.parametrize("name", ["rgba8srgb", "bgra8srgb"])
def test_srgb_textures(name):
    values = colours_for(-0.2, 1.2)
    linear = np.clip(values, 0, 1).astype(float)
    curve = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    ticks = np.rint(np.append(curve[:, :3], linear[:, 3:], 1) * 255) / 255
    back = np.where(ticks <= 0.04045, ticks / 12.92, ((ticks + 0.055) / 1.055) ** 2.4)
    back[:, 3] = ticks[:, 3]
    assert np.allclose(stored(name, values), back, rtol=0, atol=0.012)  # a tick, where it is close
    assert np.mean(np.abs(stored(name, values) - back) > 1e-4) < 0.05


def test_every_format_is_supported_or_raises():
    for fmt in F:
        if fmt.name in ("unknown", "depth24stencil8"):
            with pytest.raises(ti.Unsupported, match=fmt.name):
                ti.Texture(fmt, (2, 2))
        else:
            ti.Texture(fmt, (2, 2))


# --- sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 4, 2), (1,), (1, 1)])
def test_samples_are_blended_and_repeat(shape):
    values = RNG.random((*shape, 4), np.float32)
    uv = RNG.uniform(-2, 3, (64, len(shape)))
    found = sampled(filled("rgba32f", shape, values), uv)
    assert np.allclose(found, blended(values, uv), rtol=0, atol=1e-5)


def test_centres_of_texels():
    values = RNG.random((4, 4, 4), np.float32)
    uv = np.array([((i + 0.5) / 4, (j + 0.5) / 4) for i in range(4) for j in range(4)])
    found = sampled(filled("rgba32f", (4, 4), values), uv)
    assert np.allclose(found, values.reshape(16, 4), rtol=0, atol=1e-6)


def test_edges_meet():
    values = np.arange(12, dtype=np.float32).reshape(4, 3, 1)
    tex = filled("r32f", (4, 3), values[..., 0])
    for corner in ([0, 0], [1, 1], [0, 1], [-3, 2]):
        assert np.isclose(sampled(tex, np.array([corner]))[0, 0], (0 + 2 + 9 + 11) / 4)


def test_samples_of_bytes():
    values = RNG.random((4, 4, 4), np.float32)
    tex = filled("rgba8", (4, 4), values)
    uv = RNG.uniform(0, 1, (32, 2))
    assert np.allclose(sampled(tex, uv), blended(np.rint(values * 255) / 255, uv), atol=1e-5)


def test_samples_of_integers_are_the_nearest():
    tex = ti.Texture(F.r32i, (4,))
    tex.from_ndarray(np.array([10, -20, 30, 40], np.int32))
    uv = np.array([[0.0], [0.3], [0.49], [0.99], [1.1], [-0.1]])
    assert sampled(tex, uv)[:, 0].tolist() == [10, -20, -20, 40, 10, 40]


def test_any_level_is_the_only_one():
    tex = filled("r32f", (2, 2), np.full((2, 2), 0.25))

    @ti.kernel
    def run(t: ti.types.texture(num_dimensions=2), lod: ti.f32) -> ti.f32:
        return t.sample_lod(ti.Vector([0.3, 0.6]), lod).x

    assert [run(tex, lod) for lod in (0.0, 1.0, -2.5)] == [0.25] * 3


# --- in kernels ----------------------------------------------------------------------------------


def test_outside_there_is_nothing():
    tex = filled("r32f", (2, 2), np.ones((2, 2)))
    colours = filled("rgba32f", (2, 2), np.ones((2, 2, 4)))

    @ti.kernel
    def read(t: ti.types.texture(num_dimensions=2), i: ti.i32, j: ti.i32) -> ti.math.vec4:
        return t.fetch(ti.Vector([i, j]), 0)

    for i, j in ((-1, 0), (0, -1), (2, 0), (0, 2), (2**30, 0)):
        assert read(tex, i, j).to_list() == [0, 0, 0, 1]
        assert read(colours, i, j).to_list() == [0, 0, 0, 0]


def test_stores_outside_change_nothing():
    tex = ti.Texture(F.rgba32f, (3, 2))

    @ti.kernel
    def write(t: ti.types.rw_texture(num_dimensions=2, fmt=F.rgba32f)):
        for i, j in ti.ndrange((-2, 5), (-2, 5)):
            t.store(ti.Vector([i, j]), ti.Vector([1.0, i, j, 2.0]))

    write(tex)
    expected = [[[1, i, j, 2] for j in range(2)] for i in range(3)]
    assert fetched(tex).tolist() == expected


def test_loops_over_a_texture_and_its_shape():
    tex, out = ti.Texture(F.r32f, (4, 3)), np.zeros(2, np.int32)

    @ti.kernel
    def write(t: ti.types.rw_texture(num_dimensions=2, fmt=F.r32f), o: ti.types.ndarray()):
        for i, j in t:
            t.store(ti.Vector([i, j]), ti.Vector([10.0 * i + j, 0.0, 0.0, 0.0]))
        o[0], o[1] = t.shape

    write(tex, out)
    assert out.tolist() == [4, 3]
    assert fetched(tex)[..., 0].tolist() == [[10 * i + j for j in range(3)] for i in range(4)]


def test_grouped_loops():
    tex = ti.Texture(F.rg32f, (2, 3, 2))

    @ti.kernel
    def write(t: ti.types.rw_texture(num_dimensions=3, fmt=F.rg32f)):
        for place in ti.grouped(t):
            t.store(place, ti.Vector([place.x, place.y * 10 + place.z, 0, 0]))

    write(tex)
    assert fetched(tex)[1, 2, 1].tolist() == [1, 21, 0, 1]


def test_read_and_write_in_one_kernel():
    tex = filled("r32f", (4,), np.arange(4.0))

    @ti.kernel
    def twice(t: ti.types.rw_texture(num_dimensions=1, fmt=F.r32f)):
        for i in range(4):
            t.store(i, t.load(i) * 2)
        for i in range(4):
            t.store(i, t.load(i) + 1)

    twice(tex)
    assert fetched(tex)[:, 0].tolist() == [1, 3, 5, 7]


def test_textures_go_to_functions():
    tex = filled("rg32f", (2, 2), np.arange(8.0).reshape(2, 2, 2))

    @ti.func
    def red(t: ti.template(), i, j):
        return t.fetch(ti.Vector([i, j]), 0).r

    @ti.func
    def both(t, i):
        read = t.fetch
        return read(ti.Vector([i, i]), 0).rg

    @ti.kernel
    def run(t: ti.types.texture(num_dimensions=2)) -> ti.math.vec3:
        return ti.Vector([red(t, 0, 1), both(t, 1).x, both(t, 1).y])

    assert run(tex).to_list() == [2, 6, 7]


def test_kernel_takes_textures_of_all_formats_and_shapes():
    @ti.kernel
    def middle(t: ti.types.texture(num_dimensions=2)) -> ti.f32:
        return t.sample_lod(ti.Vector([0.5, 0.5]), 0.0).x

    for name, shape in (("r32f", (2, 2)), ("r8", (4, 4)), ("rgba16f", (2, 6)), ("r32f", (8, 2))):
        values = np.ones((*shape, channels(name)))
        assert middle(filled(name, shape, values if channels(name) > 1 else values[..., 0])) == 1


def test_methods_of_data_oriented_classes():
    @ti.data_oriented
    class Blur:
        def __init__(self, n):
            self.n = n
            self.tex = ti.Texture(F.r32f, (n, n))

        @ti.kernel
        def draw(self, t: ti.types.rw_texture(num_dimensions=2, fmt=F.r32f)):
            for i, j in ti.ndrange(self.n, self.n):
                t.store(ti.Vector([i, j]), ti.Vector([i * 1.0, 0.0, 0.0, 0.0]))

    blur = Blur(3)
    blur.draw(blur.tex)
    assert fetched(blur.tex)[2, 1, 0] == 2


def test_integer_values_and_coordinates_are_converted():
    tex = ti.Texture(F.rgba32f, (2,))

    @ti.kernel
    def write(t: ti.types.rw_texture(num_dimensions=1, fmt=F.rgba32f)):
        t.store(0, ti.Vector([1, 2, 3, 4]))
        t.store(1, ti.Vector([1, 2, 3, 4]))

    @ti.kernel
    def read(t: ti.types.texture(num_dimensions=1)) -> ti.f32:
        return t.sample_lod(1, 0).w

    write(tex)
    assert read(tex) == 4

"""ti.tools: PLY meshes and VTK grids as files, read back by the formats' rules."""

import base64
import xml.etree.ElementTree as xml

import numpy as np
import pytest

import vkchi as ti

RNG = np.random.default_rng(5)
tools = ti.tools

# --- PLY -----------------------------------------------------------------------------------------

PLY_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4",
    "float": "f4", "double": "f8",
}  # fmt: skip


def read_ply(path):
    """{element: {property: numbers}}, by the format's rules."""
    head, body = path.read_bytes().split(b"end_header\n", 1)
    lines = [line.split() for line in head.decode().splitlines()]
    assert lines[0] == ["ply"] and lines[1][2] == "1.0"
    is_ascii, elements = lines[1][1] == "ascii", []
    for words in lines[2:]:
        if words[0] == "element":
            elements.append((words[1], int(words[2]), []))
        elif words[0] == "property":
            elements[-1][2].append(words[1:])
    tokens = iter(body.split())

    def take(kind):
        nonlocal body
        if is_ascii:
            return np.dtype(PLY_TYPES[kind]).type(next(tokens).decode())
        dtype = np.dtype(PLY_TYPES[kind])
        value, body = np.frombuffer(body[: dtype.itemsize], dtype)[0], body[dtype.itemsize :]
        return value

    found = {}
    for name, count, properties in elements:
        rows = found[name] = {words[-1]: [] for words in properties}
        for _ in range(count):
            for words in properties:
                is_list = words[0] == "list"
                value = (
                    [take(words[2]) for _ in range(take(words[1]))] if is_list else take(words[0])
                )
                rows[words[-1]].append(value)
    assert is_ascii or not body
    return {e: {p: np.array(v) for p, v in rows.items()} for e, rows in found.items()}


def make_writer(count=8, faces=3, face_type="tri"):
    writer = tools.PLYWriter(num_vertices=count, num_faces=faces, face_type=face_type)
    data = {key: RNG.random(count).astype(np.float32) for key in "xyz"}
    writer.add_vertex_pos(*[data[key] for key in "xyz"])
    return writer, data


@pytest.mark.parametrize("export", ["export", "export_ascii"])
def test_ply_points(tmp_path, export):
    writer, data = make_writer(faces=0)
    getattr(writer, export)(str(tmp_path / "a.ply"))
    found = read_ply(tmp_path / "a.ply")
    assert list(found) == ["vertex"]
    for key in "xyz":
        assert np.array_equal(found["vertex"][key], data[key])


@pytest.mark.parametrize("face_type, corners", [("tri", 3), ("quad", 4)])
@pytest.mark.parametrize("export", ["export", "export_ascii"])
def test_ply_faces(tmp_path, export, face_type, corners):
    writer, _ = make_writer(faces=5, face_type=face_type)
    indices = RNG.integers(0, 8, 5 * corners)
    writer.add_faces(indices)
    writer.add_face_id()
    writer.add_face_piece(np.array([7, 7, 8, 8, 9]))
    writer.add_face_channel("area", "double", np.linspace(0, 1, 5))
    getattr(writer, export)(str(tmp_path / "a.ply"))
    face = read_ply(tmp_path / "a.ply")["face"]
    assert face["vertex_indices"].tolist() == indices.reshape(5, corners).tolist()
    assert face["id"].tolist() == [0, 1, 2, 3, 4] and face["piece"].tolist() == [7, 7, 8, 8, 9]
    assert np.array_equal(face["area"], np.linspace(0, 1, 5))


@pytest.mark.parametrize("export", ["export", "export_ascii"])
def test_properties_of_vertices(tmp_path, export):
    writer, _ = make_writer(faces=0)
    columns = RNG.random((12, 8)).astype(np.float32)
    writer.add_vertex_normal(*columns[:3])
    writer.add_vertex_vel(*columns[3:6])
    writer.add_vertex_rgba(*columns[6:10])
    writer.add_vertex_id()
    writer.add_vertex_piece(np.arange(8) // 2)
    writer.add_vertex_channel("mass", "double", columns[10].astype(np.float64))
    writer.add_vertex_channel("uv", "float", np.ascontiguousarray(columns[10:12].T))
    writer.add_vertex_channel("kind", "uchar", np.full(8, 200))
    getattr(writer, export)(str(tmp_path / "a.ply"))
    found = read_ply(tmp_path / "a.ply")["vertex"]
    names = "nx ny nz vx vy vz red green blue Alpha".split()
    for k, name in enumerate(names):
        assert np.array_equal(found[name], columns[k])
    assert found["id"].tolist() == list(range(8)) and found["piece"].tolist()[-1] == 3
    assert np.array_equal(found["mass"], columns[10]) and found["mass"].dtype == np.float64
    assert np.array_equal(found["uv_1"], columns[10]) and np.array_equal(found["uv_2"], columns[11])
    assert found["kind"].tolist() == [200] * 8


def test_colours_and_alpha_alone(tmp_path):
    writer, _ = make_writer(faces=0)
    writer.add_vertex_color(*[np.full(8, k / 4) for k in range(3)])
    writer.add_vertex_alpha(np.ones(8))
    writer.export(str(tmp_path / "a.ply"))
    found = read_ply(tmp_path / "a.ply")["vertex"]
    assert [found[k][0] for k in ("red", "green", "blue", "Alpha")] == [0, 0.25, 0.5, 1]


@pytest.mark.parametrize("given", ["mesh.ply", "mesh"])
@pytest.mark.parametrize("export", ["export_frame", "export_frame_ascii"])
def test_frames_of_a_series(tmp_path, given, export):
    writer, data = make_writer(faces=0)
    getattr(writer, export)(7, str(tmp_path / given))
    assert np.array_equal(read_ply(tmp_path / "mesh_000007.ply")["vertex"]["x"], data["x"])


def test_a_field_of_particles(tmp_path):
    x = ti.Vector.field(3, ti.f32, shape=10)
    x.from_numpy(RNG.random((10, 3)).astype(np.float32))
    values = x.to_numpy()
    writer = tools.PLYWriter(num_vertices=10, comment="particles")
    writer.add_vertex_pos(values[:, 0], values[:, 1], values[:, 2])
    writer.export_ascii(str(tmp_path / "a.ply"))
    assert "comment particles" in (tmp_path / "a.ply").read_text()
    assert np.array_equal(read_ply(tmp_path / "a.ply")["vertex"]["z"], values[:, 2])


WRONG_MESHES = {
    "no vertices": lambda w: tools.PLYWriter(num_vertices=0),
    "negative faces": lambda w: tools.PLYWriter(num_vertices=1, num_faces=-1),
    "face type": lambda w: tools.PLYWriter(num_vertices=1, face_type="hexagon"),
    "length": lambda w: w.add_vertex_channel("m", "float", np.zeros(3)),
    "corners": lambda w: w.add_faces(np.zeros(7, np.int32)),
    "no faces given": lambda w: w.export("never.ply"),
    "no such vertex": lambda w: (w.add_faces(np.full(9, 8)), w.export("never.ply")),
    "no positions": lambda w: tools.PLYWriter(num_vertices=1).export("never.ply"),
}


@pytest.mark.parametrize("what", WRONG_MESHES)
def test_wrong_meshes(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    writer, _ = make_writer()
    with pytest.raises(AssertionError):
        WRONG_MESHES[what](writer)


@pytest.mark.ours("ply-types")
def test_types_that_ply_has_not():
    writer, _ = make_writer()
    with pytest.warns(RuntimeWarning, match="PLY has no type 'half'"):
        writer.add_vertex_channel("m", "half", np.zeros(8))


# --- VTK -----------------------------------------------------------------------------------------

VTK_TYPES = {f"{word}{8 * n}": np.dtype(f"{letter}{n}") for word, letter in
             (("Int", "i"), ("UInt", "u"), ("Float", "f")) for n in (1, 2, 4, 8)
             if letter != "f" or n > 2}  # fmt: skip


def read_array(node):
    raw = base64.b64decode(node.text)
    size = int(np.frombuffer(raw[:8], np.uint64)[0])
    assert size == len(raw) - 8
    return np.frombuffer(raw[8:], VTK_TYPES[node.get("type")])


@pytest.mark.ours("write-vtk")
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u8", "f16"])
def test_vtk_grids(tmp_path, shape, dtype, lacks):
    if lacks(dtype):
        pytest.skip(f"no {dtype} here")
    field = ti.field(getattr(ti, dtype), shape=shape)
    values = RNG.integers(0, 9, shape).astype(field.to_numpy().dtype)
    field.from_numpy(values)
    tools.write_vtk(field, str(tmp_path / "density"))
    root = xml.parse(tmp_path / "density.vtr").getroot()
    assert root.get("type") == "RectilinearGrid" and root.get("header_type") == "UInt64"
    solid = (*shape, 1)[:3]
    extent = " ".join(f"0 {n}" for n in solid)
    assert root.find("RectilinearGrid/Piece").get("Extent") == extent
    (cells,) = root.findall(".//CellData/DataArray")
    assert cells.get("Name") == "density"
    assert np.array_equal(read_array(cells).reshape(solid, order="F"), values.reshape(solid))
    axes = [read_array(node).tolist() for node in root.findall(".//Coordinates/DataArray")]
    assert axes == [list(range(n + 1)) for n in solid]


@pytest.mark.ours("write-vtk")
@pytest.mark.parametrize("shape", [(3,), (2, 2, 2, 2)])
def test_invalid_grid_raises(tmp_path, shape):
    with pytest.raises(ValueError, match="2D or 3D"):
        tools.write_vtk(ti.field(ti.f32, shape=shape), str(tmp_path / "a"))

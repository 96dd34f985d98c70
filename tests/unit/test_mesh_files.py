"""`ti.tools.read_mesh` and `write_mesh`: files written by hand, by PLYWriter and by meshio."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import MissingPackageError

tools = ti.tools
CORNERS = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 1]])
# Five faces: two quads between triangles, and a pentagon.
TEXT = """ply
format ascii 1.0
comment element face 7
element vertex 5
property float x
property float y
property double z
property uchar red
element edge 2
property int vertex1
property int vertex2
element face 5
property uchar material
property list uchar int vertex_index
property float area
end_header
0 0 0 200
1 0 0 0
1 1 0 255
0 1 0 7
0.5 0.5 1 9
0 1
1 2
4 3 0 1 4 0.5
5 4 0 1 2 3 1.0
6 3 1 2 4 0.25
7 4 3 2 1 0 1.5
8 5 0 1 2 3 4 2.5
"""


def binary(order: str) -> bytes:
    """TEXT as a binary file."""
    head, body = TEXT.split("end_header\n")
    form = "binary_big_endian" if order == ">" else "binary_little_endian"
    rows = [line.split() for line in body.splitlines()]
    packed = b"".join(
        struct.pack(order + "ffdB", *map(float, row[:3]), int(row[3])) for row in rows[:5]
    )
    packed += b"".join(struct.pack(order + "ii", *map(int, row)) for row in rows[5:7])
    for row in rows[7:]:
        material, count, *corners = map(int, row[:-1])
        packed += struct.pack(order + f"BB{count}if", material, count, *corners, float(row[-1]))
    return head.replace("ascii", form).encode() + b"end_header\n" + packed


FILES = {"ascii": TEXT.encode(), "little": binary("<"), "big": binary(">"),
         "crlf": TEXT.replace("\n", "\r\n").encode()}  # fmt: skip


@pytest.mark.parametrize("form", FILES)
def test_a_ply_file_with_properties_lists_and_other_elements(tmp_path: Path, form: str) -> None:
    (tmp_path / "a.ply").write_bytes(FILES[form])
    mesh = tools.read_mesh(tmp_path / "a.ply")
    assert mesh.vertices.dtype == np.float64 and np.array_equal(mesh.vertices, CORNERS)
    assert mesh.vertex_data["red"].dtype == np.uint8
    assert mesh.vertex_data["red"].tolist() == [200, 0, 255, 7, 9]
    assert {kind: rows.tolist() for kind, rows in mesh.cells.items()} == {
        "triangle": [[0, 1, 4], [1, 2, 4]],
        "quad": [[0, 1, 2, 3], [3, 2, 1, 0]],
        "polygon5": [[0, 1, 2, 3, 4]],
    }
    material = {kind: rows.tolist() for kind, rows in mesh.cell_data["material"].items()}
    assert material == {"triangle": [4, 6], "quad": [5, 7], "polygon5": [8]}
    assert mesh.cell_data["area"]["quad"].tolist() == [1.0, 1.5]
    assert mesh.triangles.tolist() == [
        [0, 1, 4], [1, 2, 4], [0, 1, 2], [0, 2, 3], [3, 2, 1], [3, 1, 0],
        [0, 1, 2], [0, 2, 3], [0, 3, 4],
    ]  # fmt: skip


@pytest.mark.parametrize("export", ["export", "export_ascii"])
@pytest.mark.parametrize("face_type, kind", [("tri", "triangle"), ("quad", "quad")])
def test_files_of_ply_writer(tmp_path: Path, export: str, face_type: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    count, corners = 50, {"tri": 3, "quad": 4}[face_type]
    points = rng.random((count, 3)).astype(np.float32)
    faces = rng.integers(0, count, (70, corners))
    writer = tools.PLYWriter(count, len(faces), face_type)
    writer.add_vertex_pos(*points.T)
    writer.add_vertex_id()
    values = {
        "char": rng.integers(-128, 128, count), "uchar": rng.integers(0, 256, count),
        "short": rng.integers(-(2**15), 2**15, count), "ushort": rng.integers(0, 2**16, count),
        "int": rng.integers(-(2**31), 2**31, count), "uint": rng.integers(0, 2**32, count),
        "double": rng.random(count),
    }  # fmt: skip
    for name, data in values.items():
        writer.add_vertex_channel(f"a_{name}", name, data)
    writer.add_faces(faces)
    writer.add_face_id()
    writer.add_face_piece(np.arange(70) // 3)
    getattr(writer, export)(tmp_path / "a.ply")
    mesh = tools.read_mesh(str(tmp_path / "a.ply"))
    assert mesh.vertices.dtype == np.float32 and np.array_equal(mesh.vertices, points)
    assert mesh.vertex_data["id"].tolist() == list(range(count))
    for name, data in values.items():
        assert np.array_equal(mesh.vertex_data[f"a_{name}"], data), name
    assert np.array_equal(mesh.cells[kind], faces) and mesh.cells[kind].dtype == np.int32
    assert np.array_equal(mesh.cell_data["piece"][kind], np.arange(70) // 3)


def test_a_ply_file_of_points_alone(tmp_path: Path) -> None:
    writer = tools.PLYWriter(2)
    writer.add_vertex_pos([0, 1], [2, 3], [4, 5])
    writer.export(tmp_path / "a.ply")
    mesh = tools.read_mesh(tmp_path / "a.ply")
    assert mesh.vertices.tolist() == [[0, 2, 4], [1, 3, 5]]
    assert mesh.cells == {} and mesh.triangles.shape == (0, 3) and mesh.vertex_data == {}


BROKEN = {
    "no header": b"solid a\n",
    "a format": TEXT.replace("ascii", "ebcdic").encode(),
    "a type": TEXT.replace("property uchar red", "property half red").encode(),
    "no positions": TEXT.replace("float x", "float u").encode(),
    "too short": binary("<")[:-3],
    "no numbers": TEXT.replace("0.5 0.5", "0.5 a").encode(),
    "out of the type": TEXT.replace("0 0 0 200", "0 0 0 300").encode(),
    "no such vertex": TEXT.replace("3 0 1 4 0.5", "3 0 1 5 0.5").encode(),
    "negative": TEXT.replace("3 0 1 4 0.5", "3 0 1 -1 0.5").encode(),
    "a count": TEXT.replace("3 0 1 4 0.5", "-3 0 1 4 0.5").encode(),
    "a header": TEXT.replace("element edge 2", "element edge").encode(),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_ply_file_is_an_error(tmp_path: Path, fault: str) -> None:
    (tmp_path / "a.ply").write_bytes(BROKEN[fault])
    with pytest.raises(RuntimeError, match=r"cannot read the mesh .*a\.ply': \S"):
        tools.read_mesh(tmp_path / "a.ply")


def test_a_file_that_is_missing() -> None:
    with pytest.raises(RuntimeError, match=r"cannot read the mesh 'no/a\.ply': .*No such file"):
        tools.read_mesh("no/a.ply")


def test_only_ply_is_read_without_meshio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.ply").write_text(TEXT, encoding="utf-8")
    monkeypatch.setitem(sys.modules, "meshio", None)
    assert len(tools.read_mesh(tmp_path / "a.ply").vertices) == 5
    for use in (
        lambda: tools.read_mesh(tmp_path / "a.obj"),
        lambda: tools.write_mesh(tmp_path / "a.ply", CORNERS, [[0, 1, 2]]),
    ):
        with pytest.raises(MissingPackageError, match="pip install meshio"):
            use()


# --- through meshio ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".obj", ".ply", ".stl", ".vtk", ".vtu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_triangles_written_and_read(tmp_path: Path, suffix: str, dtype: type) -> None:
    pytest.importorskip("meshio")
    faces = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4]])
    tools.write_mesh(tmp_path / f"a{suffix}", CORNERS.astype(dtype), faces)
    mesh = tools.read_mesh(tmp_path / f"a{suffix}")
    assert np.allclose(mesh.vertices[mesh.cells["triangle"]], CORNERS[faces], atol=1e-6)
    if suffix != ".stl":  # it has no vertices, only corners
        assert np.array_equal(mesh.triangles, faces) and mesh.triangles.dtype == np.int32


def test_vertex_numbers_in_one_axis(tmp_path: Path) -> None:
    """As `scene.mesh` takes them."""
    pytest.importorskip("meshio")
    faces = [0, 1, 4, 1, 2, 4]
    tools.write_mesh(tmp_path / "a.vtk", CORNERS.tolist(), faces)
    mesh = tools.read_mesh(tmp_path / "a.vtk")
    assert mesh.triangles.ravel().tolist() == faces
    assert mesh.vertices.dtype.isnative and np.array_equal(mesh.vertices, CORNERS)


@pytest.mark.parametrize("suffix", [".vtk", ".vtu"])
def test_vtk_files_with_cells_and_data(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("meshio")
    cells = {"tetra": np.array([[0, 1, 2, 4], [0, 2, 3, 4]]), "quad": np.array([[0, 1, 2, 3]])}
    data = {"heat": np.arange(5.0), "velocity": CORNERS.astype(np.float32)}
    tools.write_mesh(tmp_path / f"a{suffix}", CORNERS, cells, data)
    mesh = tools.read_mesh(tmp_path / f"a{suffix}")
    for kind, rows in cells.items():
        assert np.array_equal(mesh.cells[kind], rows)
    for name, values in data.items():
        assert np.array_equal(mesh.vertex_data[name], values)
        assert mesh.vertex_data[name].dtype == values.dtype
    assert mesh.triangles.tolist() == [[0, 1, 2], [0, 2, 3]]


def test_written_ply_files_have_data(tmp_path: Path) -> None:
    pytest.importorskip("meshio")
    mass = np.arange(5, dtype=np.float32)
    tools.write_mesh(tmp_path / "a.ply", CORNERS[:, :2], [[0, 1, 2, 3]], {"mass": mass})
    mesh = tools.read_mesh(tmp_path / "a.ply")
    assert mesh.vertices[:, :2].tolist() == CORNERS[:, :2].tolist()
    assert not mesh.vertices[:, 2].any()
    assert mesh.vertex_data["mass"].tolist() == mass.tolist()
    assert mesh.cells["quad"].tolist() == [[0, 1, 2, 3]]


def test_an_obj_file_by_hand(tmp_path: Path) -> None:
    pytest.importorskip("meshio")
    text = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3 4\nf 1//1 2//2 3//3\n"
    (tmp_path / "a.obj").write_text(text, encoding="utf-8")
    mesh = tools.read_mesh(tmp_path / "a.obj")
    assert mesh.triangles.tolist() == [[0, 1, 2], [0, 2, 3], [0, 1, 2]]
    (tmp_path / "a.obj").write_text(
        text + "f -1 -2 -3\n", encoding="utf-8"
    )  # meshio takes them for others
    with pytest.raises(RuntimeError, match="a corner that is no vertex"):
        tools.read_mesh(tmp_path / "a.obj")


@pytest.mark.parametrize("suffix", [".obj", ".stl", ".vtk", ".vtu", ".msh", ".off"])
@pytest.mark.parametrize("content", [b"", b"nothing of the kind\n"])
def test_a_broken_file_is_an_error(
    tmp_path: Path, suffix: str, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("meshio")
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    try:
        mesh = tools.read_mesh(path)
    except RuntimeError as error:
        assert "cannot read the mesh" in str(error)
    else:
        assert (
            mesh.vertices.shape == (0, 3) and mesh.cells == {}
        )  # an OBJ file may have nothing in it
    assert capfd.readouterr() == ("", "")


WRONG = {
    "suffix": ("a.xyz", CORNERS, [[0, 1, 2]], None),
    "vertices": ("a.obj", CORNERS[0], [[0, 1, 2]], None),
    "corners": ("a.obj", CORNERS, [[0, 1]], None),
    "floats": ("a.obj", CORNERS, [[0.0, 1.0, 2.0]], None),
    "no such vertex": ("a.obj", CORNERS, [[0, 1, 5]], None),
    "kind": ("a.stl", CORNERS, [[0, 1, 2, 3]], None),
    "data": ("a.obj", CORNERS, [[0, 1, 2]], {"m": np.zeros(5)}),
    "rows": ("a.vtu", CORNERS, [[0, 1, 2]], {"m": np.zeros(4)}),
    "columns": ("a.ply", CORNERS, [[0, 1, 2]], {"m": np.zeros((5, 2))}),
}


@pytest.mark.parametrize("fault", WRONG)
def test_an_unwritable_mesh_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    pytest.importorskip("meshio")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ti.VkchiError):
        tools.write_mesh(*WRONG[fault])
    assert list(tmp_path.iterdir()) == []


def test_unknown_suffixes_and_missing_folders(tmp_path: Path) -> None:
    pytest.importorskip("meshio")
    with pytest.raises(ti.VkchiError, match=r"no mesh format has the suffix '\.vtr'"):
        tools.read_mesh("density.vtr")
    with pytest.raises(RuntimeError, match="cannot write the mesh .*No such file"):
        tools.write_mesh(tmp_path / "no" / "a.obj", CORNERS, [[0, 1, 2]])


def test_lists_of_no_whole_length_are_errors(tmp_path):
    path = tmp_path / "bad.ply"
    header = "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
    header += (
        "property float z\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n"
    )
    path.write_text(f"{header}0 0 0\n2.5 0 0 0\n", encoding="utf-8")
    with pytest.raises(ti.VkchiError, match="a list of vertex_indices has the length 2.5"):
        ti.tools.read_mesh(str(path))

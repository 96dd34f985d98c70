"""The notebooks in `examples/`, executed by Jupyter's kernel. Skipped where nbclient or ipykernel
is not installed."""

from __future__ import annotations

import base64
import io
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from vkchi.errors import MissingPackageError
from vkchi.ui.packages import require_ggui

ROOT = Path(__file__).parents[3]


@pytest.fixture
def kernel_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel that runs this Python, with the path and the device of the tests."""
    pytest.importorskip("ipykernel")
    folder = tmp_path / "kernels" / "here"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "here", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return "here"


def picture_of(cell) -> np.ndarray:
    """The one picture in a cell's output: u8[w, h, 3] from the lower left."""
    found = [out["data"]["image/png"] for out in cell.outputs if "image/png" in out.get("data", {})]
    assert len(found) == 1, cell.outputs
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(base64.b64decode(found[0])))
    return np.asarray(image.convert("RGB"))[::-1].swapaxes(0, 1)


def test_the_notebook(kernel_name: str) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples" / "first_steps.ipynb", as_version=4)
    try:
        require_ggui()
    except MissingPackageError:
        notebook.cells.pop()
    nbclient.NotebookClient(notebook, timeout=100, kernel_name=kernel_name).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    mean = float(code[0].outputs[-1]["data"]["text/plain"].split("(")[-1].rstrip(")"))
    assert 0.2 < mean < 0.9
    image = picture_of(code[1])
    assert image.shape == (320, 160, 3) and image.std() > 20
    if len(code) == 3:
        image = picture_of(code[2])
        assert image.shape == (240, 180, 3) and image[0, 0].max() == 0
        assert image[120, 90, 0] > 1.5 * image[120, 90, 1] > 40


def test_the_first_hour_is_a_notebook(kernel_name: str, tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("torch")
    path = ROOT / "examples" / "first_hour.ipynb"
    make = runpy.run_path(str(ROOT / "scripts" / "notebook"))["make_notebook"]
    page = (ROOT / "docs" / "first_hour.md").read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8") == make(page), "run scripts/notebook"
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(
        notebook, timeout=200, kernel_name=kernel_name, resources=place
    )
    client.execute()
    assert (tmp_path / "wave.png").is_file() and (tmp_path / "out/wave/video.gif").is_file()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert "[0.25, 0.5, 0.25]\n" in [out.get("text", "") for out in outputs]

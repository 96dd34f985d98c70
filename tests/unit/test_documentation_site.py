"""The documentation as a site: every link leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import html
import importlib
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import vkchi as ti
from vkchi import platform, public_names
from vkchi.cli.example import is_drawn, list_examples, title_of
from vkchi.public_names import public_members

ROOT = Path(__file__).parents[2]
ADDRESS = "https://example.org/here/"
LOADED = re.compile(r"""<(?:script|img|link)[^>]*(?:src|href)=["'](?:https?:)?//[^"']*["'][^>]*>""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "SITE_URL": ADDRESS}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_site_is_self_contained(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    outside = {m for page in pages for m in LOADED.findall(page.read_text(encoding="utf-8"))}
    assert {m for m in outside if "canonical" not in m} == set()
    chapters = [site / "reference.html", *(site / "reference").glob("*.html")]
    assert max(path.stat().st_size for path in chapters) < 300_000
    text = "".join(path.read_text(encoding="utf-8") for path in chapters)
    assert re.search(r'class="n">init</span>|class="nf">init</span>', text)
    for shown in ("default_fp", "needs_grad", "clear_gradients"):  # parameters of signatures
        assert re.search(rf'<span class="n">{shown}</span>', text), shown
    members = set(re.findall(r'id="vkchi\.[\w.]*?\.(\w+\.\w+)"', text))
    for kind in (ti.ScalarField, ti.MatrixField, ti.ScalarNdarray, ti.VectorNdarray, ti.ad.Tape):
        public = {f"{kind.__name__}.{name}" for name in public_members(kind) or ()}
        found = {name for name in members if name.startswith(f"{kind.__name__}.")}
        assert found == public
    public = [
        *public_names.read_names(),
        "ad.Tape",
        "math.mix",
        "tools.VideoManager",
        "simt.block.sync",
    ]
    assert [name for name in public if not re.search(rf">\s*ti\.{re.escape(name)}\s*<", text)] == []
    canonical = re.search(r'<link rel="canonical" href="([^"]*)"', chapters[0].read_text("utf-8"))
    assert canonical is not None and canonical[1] == f"{ADDRESS}reference.html"
    changes = (site / "changelog.html").read_text(encoding="utf-8")
    assert "What users notice" in changes


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_every_golden_message_is_on_the_page_of_errors(site: Path) -> None:
    page = (site / "errors.html").read_text(encoding="utf-8")
    shown = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", page)))
    goldens = [
        p for name in ("errors", "calls") for p in (ROOT / "tests/golden" / name).glob("*.txt")
    ]
    missing = []
    for path in sorted(goldens):
        kind, said, *_ = path.read_text(encoding="utf-8").splitlines()
        sentence = re.sub(r"^tests/golden/\S+\.py:\d+:\d+: ", "", said).replace("`", "")
        if kind not in shown or re.sub(r"\s+", " ", sentence) not in shown:
            missing.append((path.stem, sentence))
    assert missing == []


def test_every_message_has_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    page = importlib.import_module("error_page")
    assert [golden.sentence for golden in page.read_goldens() if not golden.fix] == [], (
        "add a line to tests/golden/fixes.txt"
    )
    fixes = page.read_fixes()
    used = {golden.fix for golden in page.read_goldens()}
    assert [pattern.pattern for pattern, fix in fixes if fix not in used] == []


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_search_works_in_pages_opened_as_files(site: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    page = f"{(site / 'index.html').as_uri()}?q=gradient"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    command = [str(BROWSER), *options, "--dump-dom", page]
    environment = {**os.environ, "HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert re.search(r"[1-9]\d* matching documents", done.stdout)
    assert "reference/gradients.html" in done.stdout


def test_the_install_page_has_the_commands_of_the_hints() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for row in platform.PACKAGES:
        assert f"`{row.install} {row.driver}`" in page
    for address in (platform.NVIDIA, platform.AMD, platform.INTEL, f"{platform.SDK}#mac"):
        assert f"({address})" in page
    assert "brew install vulkan-loader molten-vk" in platform.SYSTEMS["darwin"].driver
    assert "`brew install vulkan-loader molten-vk`" in page


def test_the_install_page_lists_the_extras_for_users() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.split("| extra | for |")[1].split("\n\n")[0]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
    named = set(re.findall(r"^(\w+) = \[", extras, re.M)) - {"docs", "dev"}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == named


def test_the_gallery_shows_every_example() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) ?\| \*\*\[`(\w+)`\]\((.*?)\)\*\*: (.*) \|$", page, re.M)
    examples = list_examples()
    assert [(name, title) for _, name, _, title in rows] == [
        (name, title_of(path)) for name, path in examples.items()
    ], "run scripts/pictures"
    for picture, name, source, _ in rows:
        assert (ROOT / "docs" / source).resolve() == examples[name].resolve()
        assert bool(picture) == is_drawn(examples[name])
        if picture:
            assert picture == f"[![{name}](pictures/{name}.webp)]({source})"


def test_pictures_of_the_gallery_are_large_and_move() -> None:
    image = pytest.importorskip("PIL.Image")
    for name in [name for name, path in list_examples().items() if is_drawn(path)]:
        path = ROOT / "docs" / "pictures" / f"{name}.webp"
        assert path.stat().st_size <= 300_000
        with image.open(path) as opened:
            assert opened.size[0] >= 480 and opened.n_frames >= 5


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_the_gallery_links_to_programs(site: Path) -> None:
    page = (site / "examples.html").read_text(encoding="utf-8")
    for name in list_examples():
        assert f'href="examples/{name}.html"' in page
        shown = (site / "examples" / f"{name}.html").read_text(encoding="utf-8")
        assert f"vkchi example {name}" in shown and "import" in shown


def test_chapters_are_in_the_order_of_a_readers_questions() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert re.findall(r"^  - ([^:]+):", text, re.M) == [
        "vkchi", "Install", "First hour", "Guide", "Gradients", "PyTorch and other libraries",
        "Fast kernels", "Debugging", "Gallery", "FAQ", "Errors", "Reference", "For Taichi users",
        "Compared with others", "Changelog", "Contributing",
    ]  # fmt: skip


def test_every_target_of_make_has_a_rule_and_a_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    declared = re.search(r"^\.PHONY: (.*)$", text, re.M)
    assert declared is not None
    targets = set(declared[1].split())
    assert targets == set(re.findall(r"^(\w+):", text, re.M))
    told = set(re.findall(r'@echo "make (\w+) ', text))
    assert told == targets - {"help", "clean"}

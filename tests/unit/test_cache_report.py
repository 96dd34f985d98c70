"""`vkchi cache show` and `report --html`: source, IR and SPIR-V, linked line by line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from vkchi.__main__ import main
from vkchi.cache.inspection import driver_report, lookup, report, source_links
from vkchi.cache.inspection.source_links import Linked, link
from vkchi.cache.store import CacheEntry, CacheStore, read_entry
from vkchi.cache.version import compiler_version
from vkchi.cli.cache import show_texts
from vkchi.errors import CompilationError

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PROGRAM = """
import vkchi as ti
ti.init(arch=ti.vulkan, log_level="error")
x = ti.field(ti.f32, 64, needs_grad=True)
loss = ti.field(ti.f32, (), needs_grad=True)

@ti.func
def bent(v):
    return v * v + 0.25

@ti.kernel
def scale(a: ti.f32):
    for i in x:
        if x[i] < a:  # <b>&
            x[i] += bent(a)

@ti.kernel
def total():
    for i in x:
        loss[None] += x[i] ** 2

scale(2.0)
with ti.ad.Tape(loss):
    total()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that a program filled."""
    made = tmp_path_factory.mktemp("report")
    (made / "program.py").write_text(PROGRAM, encoding="utf-8")
    around = {k: v for k, v in os.environ.items() if not k.startswith("VKCHI_DUMP")}
    around |= {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(made / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(made / "program.py")]
    subprocess.run(command, env=around, check=True)
    return made


@pytest.fixture
def store(folder: Path) -> CacheStore:
    return CacheStore(str(folder / "cache"))


Run = Callable[..., str]


@pytest.fixture
def run(store: CacheStore, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a verb on that cache; return its output."""

    def run_verb(*words: str, status: int = 0) -> str:
        assert main(["cache", "--folder", store.root, *words]) == status, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if status == 0 else said.out + said.err

    return run_verb


def entry(store: CacheStore, kind: str, name: str) -> tuple[str, dict[str, Any], bytes]:
    (key,) = [
        e.key for e in store.entries() if (e.header["kind"], e.header["name"]) == (kind, name)
    ]
    return (key, *read_entry(store.path_of(key)))


def linked(store: CacheStore, kind: str, name: str) -> Linked:
    return link(*entry(store, kind, name)[1:])


def of_line(found: Linked, text: str) -> tuple[list[str], list[str]]:
    """The IR and the instructions of the source line that begins so."""
    (ref,) = [
        line.refs[0]
        for p in found.sources
        for line in p.lines
        if line.text.strip().startswith(text)
    ]
    code = [line.text for part in found.shaders for line in part.lines if ref in line.refs]
    return [line.text for line in found.ir if ref in line.refs], code


def test_a_kernels_lines_are_linked(store: CacheStore) -> None:
    found = linked(store, "kernel", "scale")
    assert found.is_linked and len(found.sources) == 2
    ir, code = of_line(found, "return v * v")
    assert any(" mul " in line for line in ir) and any("OpFMul" in line for line in code)
    above, call = of_line(found, "x[i] += bent(a)")
    assert set(ir) <= set(above) and set(code) <= set(call)  # code that was inlined there
    assert any("OpStore" in line or "OpAtomic" in line for line in call)
    ir, code = of_line(found, "if x[i] < a")
    assert any("OpFOrdLessThan" in line for line in code) and any("if %" in line for line in ir)


@pytest.mark.parametrize("name", ["total", "total.grad"])
def test_lines_of_shaders_are_those_of_files(store: CacheStore, name: str) -> None:
    found = linked(store, "shaders", name)
    ir, code = of_line(found, "loss[None] += x[i] ** 2")
    assert found.is_linked and len(found.sources) == 1 and ir and code


def test_every_op_has_its_own_line(store: CacheStore) -> None:
    """The lines of IR and their spans do not slip against each other, behind regions either."""
    for line in linked(store, "kernel", "scale").ir:
        if "store" in line.text or "atomic" in line.text:
            assert line.refs[0] == "0:4", line


def test_entries_of_other_versions_are_not_linked(store: CacheStore) -> None:
    _, header, body = entry(store, "kernel", "scale")
    parts = {**header["parts"], "device subgroup_size": "4", "option block_dim": "32"}
    found = link({**header, "parts": parts}, body)
    assert not found.is_linked and found.ir and found.sources and found.shaders
    assert not link({**header, "parts": {"option colour": "1"}}, body).is_linked


def test_show_links_source_and_code(run: Run, store: CacheStore) -> None:
    key = entry(store, "kernel", "scale")[0]
    text = run("show", key[:10])
    for words in ("return v * v + 0.25", "func @scale(", "OpEntryPoint", "driver  ", "seconds "):
        assert words in text
    assert text.index("--- source") < text.index("--- IR") < text.index("--- SPIR-V")


def test_side_by_side(store: CacheStore, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal that is wide enough."""
    show_texts(linked(store, "kernel", "scale"), 200)
    lines = capsys.readouterr().out.split("\n")
    assert any("def scale" in line and "%" in line and "Op" in line for line in lines)
    assert max(map(len, lines)) <= 200 and lines[0].split() == ["source", "IR", "SPIR-V"]


def test_driver_statistics_are_kept(
    run: Run, store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the driver's word; that RADV gives it is tested with `vkchi compile`."""
    from vkchi.vk.pipelines import PipelineExecutable

    numbers = {"VGPRs": 12, "Spilled VGPRs": 0, "Code size": 52}
    outcome = driver_report.CompileOutcome(
        (PipelineExecutable("CS", 64, numbers, {"Assembly": "s_endpgm"}),)
    )
    monkeypatch.setattr(
        driver_report, "compile_all", lambda family, shaders, caps: [outcome] * len(shaders)
    )
    monkeypatch.setattr(driver_report, "capability_mismatch", lambda *a: "")
    key = entry(store, "kernel", "total")[0]
    before = store.entry(key)
    text = run("show", key, "--device", "navi31", "--isa")
    assert "VGPRs = 12" in text and "s_endpgm" in text and "RADV, as for navi31" in text
    (row,) = json.loads(run("ls", "total", "--kind", "kernel", "--json"))
    assert row["driver"]["statistics"][0] == numbers
    assert row["written"] == pytest.approx(before.written) and store.entry(key).hits == before.hits
    assert "0 damaged" in run("verify")


def test_a_driver_of_another_device(run: Run, store: CacheStore) -> None:
    key = entry(store, "kernel", "scale")[0]
    assert "with other capabilities than AMD RDNA3" in run("show", key, "--device", "navi31")
    assert "no compiler for Arm Mali" in run("show", key, "--device", "mali-valhall")
    assert "no Vulkan device matches" in run("show", key, "--device", "zzz")


# --- the page ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Open tags, loaded resources, and lines."""

    VOID = ("meta", "!doctype")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.lines: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.faults: list[str] = []
        self.current: list[str] | None = None
        self.depth = 0  # of spans inside of the current line
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.loaded += [given[k] for k in ("src", "srcset", "data") if k in given]
        self.loaded += [tag] if tag in ("link", "iframe", "object", "embed", "img") else []
        self.links += [given["href"]] if "href" in given else []
        self.ids += [given["id"]] if "id" in given else []
        if "data-r" in given:
            self.current, self.depth = [given["data-r"], ""], len(self.open)

    def handle_data(self, data: str) -> None:
        if self.current is not None:
            self.current[1] += data

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            self.faults.append(tag)
        if self.current is not None and len(self.open) < self.depth:
            self.lines.append((self.current[0], self.current[1]))
            self.current = None


@pytest.fixture
def packages() -> None:
    """Skip the test without the packages of the report."""
    pytest.importorskip("jinja2")
    pytest.importorskip("pygments")


@pytest.fixture
def page(run: Run, tmp_path: Path, packages: None) -> Path:
    path = tmp_path / "cache.html"
    assert "whole, written to" in run("report", "--html", str(path))
    return path


def test_the_page_is_whole_and_loads_nothing(page: Path, store: CacheStore) -> None:
    text = page.read_text(encoding="utf-8")
    found = Page(text)
    assert found.open == [] and found.faults == [] and found.loaded == []
    assert len(found.ids) == len(set(found.ids)) == len(found.links) > 2
    assert {link[1:] for link in found.links} == set(found.ids)
    assert "default-src 'none'" in text and "url(" not in text and "@import" not in text
    assert not re.search(r"https?://", text)
    lines = [line for _, line in found.lines]
    assert any("if x[i] < a:  # <b>&" in line for line in lines)  # as it stands in the file
    assert "# &lt;b&gt;&amp;" in text and unescape("&lt;") == "<"
    assert any("OpFMul" in line for line in lines) and any(" = mul" in line for line in lines)
    for name in ("scale", "total", "total.grad"):
        assert name in text


def test_code_is_highlighted(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for token in ("k>if", "nf>scale", "nd>@ti", "k>OpEntryPoint", "kt>f32", "k>mul"):
        assert f'<span class="{token.replace(">", chr(34) + ">")}</span>' in text, token
    assert "prefers-color-scheme: dark" in text


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    "lines",
    [
        ["def f():", '    """Begins', "", "    and ends.", '    """', "", ""],
        ["", "", "x = 1\r", "\t$ ? `", "'", '"""', "never ends", ""],
        [],
        [""],
    ],
)
@pytest.mark.parametrize("language", ["python", "ir"])
def test_highlighted_code_has_the_same_lines(lines: list[str], language: str) -> None:
    highlight, _ = report.highlighter()
    found = highlight("\n".join(lines), language)
    texts = [unescape(re.sub("<[^>]*>", "", line)) for line in found]
    assert texts == (lines or [""])


@pytest.mark.usefixtures("packages")
def test_an_entry_without_ir_is_shown(store: CacheStore) -> None:
    """Entries of further variants have shaders alone."""
    found = next(e for e in store.entries() if e.header["name"] == "scale")
    shader = linked(store, "kernel", "scale").shaders
    text = report.page([found], [(found, Linked((), (), shader, False))], {}, "a title")
    assert "<pre></pre>" in text and "OpEntryPoint" in text and Page(text).open == []


def test_the_report_without_its_packages(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jinja2", "pygments"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            said = run("report", "--html", str(tmp_path / "cache.html"), status=1)
        assert 'pip install "vkchi[cli]"' in said
    assert not (tmp_path / "cache.html").exists()


@pytest.mark.usefixtures("packages")
def test_profiler_timings(run: Run, tmp_path: Path) -> None:
    """Of a trace of ti.profiler."""
    trace, path = tmp_path / "trace.json", tmp_path / "cache.html"
    events = [{"name": f"scale.{k}", "ts": 0, "dur": 250.0} for k in range(3)]
    trace.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    run("report", "scale", "--html", str(path), "--timings", str(trace))
    text = path.read_text(encoding="utf-8")
    assert '<td class="n">3</td><td class="n">0.750 ms</td>' in text
    assert '<th class="n">dispatches</th>' in text


@pytest.mark.usefixtures("packages")
def test_only_some_are_shown_whole(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cache.html"
    assert ", 1 of them whole" in run("report", "--html", str(path), "--most", "1")
    assert path.read_text(encoding="utf-8").count("<details id=") == 1
    run("report", "no such kernel", "--html", str(path))
    assert Page(path.read_text(encoding="utf-8")).open == []


CHECK = """
<script>
const said = [];
addEventListener("error", event => said.push("error: " + event.message));
const details = [...document.querySelectorAll("details[id]")].find(
  d => d.textContent.includes("bent"));
details.open = true;
const line = [...details.querySelectorAll(".source [data-r]")].find(
  l => l.textContent.includes("return v * v"));
const count = (where, name) => details.querySelectorAll(`.${where} .${name}`).length;
line.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
said.push(["source", "ir", "spirv"].map(where => count(where, "on")).join(" "));
said.push(getComputedStyle(line).backgroundColor);
line.click();
document.querySelector("h1").dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
said.push(["source", "ir", "spirv"].map(where => count(where, "pin")).join(" "));
said.push(count("spirv", "on"));
line.click();
said.push(document.querySelectorAll(".pin").length);
const code = details.querySelector(".spirv [data-r]");
code.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
said.push(count("source", "on"));
const columns = [".source", ".ir", ".spirv"].map(
  c => details.querySelector(c).getBoundingClientRect());
said.push(columns[0].right <= columns[1].left && columns[1].right <= columns[2].left);
document.title = JSON.stringify(said);
</script>
"""


@pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)),
    reason="no Chromium here: apt-get install chromium-headless-shell",
)
def test_the_page_in_a_browser(page: Path, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    page.write_text(
        page.read_text(encoding="utf-8").replace("</body>", CHECK + "</body>"), encoding="utf-8"
    )
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1500,900",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None, done.stdout[-500:] + done.stderr[-2000:]
    said = json.loads(unescape(title[1]))
    hovered, colour, pinned, still_on, unpinned, back, side_by_side = said
    assert hovered.split()[0] == "1" and all(int(n) > 0 for n in hovered.split()), said
    assert colour not in ("rgba(0, 0, 0, 0)", "transparent")
    assert pinned == hovered and still_on == int(hovered.split()[2]) and unpinned == 0, said
    assert back == 1 and side_by_side is True, said


def test_an_entry_with_invalid_ir_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(header: object, body: bytes) -> None:
        raise CompilationError("`old_op` is no op")

    monkeypatch.setattr(source_links, "link", fail)
    entry = CacheEntry("ab" * 32, {"version": compiler_version()}, 0, 0.0, 0.0, 0)
    with pytest.raises(lookup.Missing, match="cannot be read: `old_op` is no op"):
        lookup.linked_of(entry, b"")

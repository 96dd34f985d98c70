"""The pages of docs/, but for those that draw: output of their snippets.

The output of a `print` at the start of a line is the comment after it, if there is one. Lines of
the output without such a comment may stand between.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
CHAPTERS = sorted((DOCS / "language").glob("*.md"))
# Those that draw have tests of their own; architecture has sketches that cannot run.
PAGES = sorted(path for path in DOCS.glob("*.md") if path.stem not in ("gui", "ui", "design"))
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
SAID = re.compile(r"^print\(.*\)  # (.*)$", re.M)


def programs(codes: list[str]) -> list[str]:
    """Programs of a page: a snippet without imports continues the one before."""
    found: list[str] = []
    for code in codes:
        if found and not re.search(r"^(?:import|from) ", code, re.M):
            found[-1] += f"\n{code}"
        else:
            found.append(code)
    return found


def snippets() -> list[tuple[str, str]]:
    """(name, code) of every snippet."""
    found = []
    for path in [*CHAPTERS, *PAGES]:
        codes = programs(SNIPPET.findall(path.read_text()))
        found += [(f"{path.stem}_{k}", code) for k, code in enumerate(codes)]
    return found


@pytest.mark.usefixtures("own_runtime", "own_collections")
@pytest.mark.parametrize(("name", "code"), snippets(), ids=lambda x: x if "\n" not in x else "")
def test_snippets_print_documented_output(
    name: str,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for package in ("torch", "dask", "ray"):
        if re.search(rf"^(?:import|from) {package}\b", code, re.M):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{name}.py"
    path.write_text(code)
    found = runpy.run_path(str(path))
    for rule in ("before", "after"):  # of docs/performance.md; benchmarks/rules.py measures them
        if rule in found:
            found[rule]()
    printed = iter(capsys.readouterr().out.splitlines())
    for want in SAID.findall(code):
        assert any(want == line.strip() for line in printed), f"not printed: {want}"


def test_every_chapter_is_in_the_index() -> None:
    named = set(re.findall(r"\(language/(\w+)\.md\)", (DOCS / "language.md").read_text()))
    assert named == {path.stem for path in CHAPTERS}

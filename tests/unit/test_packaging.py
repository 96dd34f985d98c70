"""Metadata, links and version of a release. `scripts/package` builds and tries the wheel."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import vkchi as ti

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
setuptools = pytest.importorskip("setuptools")


@pytest.fixture(scope="module")
def setup() -> dict[str, Any]:
    """The names of setup.py, which builds nothing when it is imported."""
    return runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


def array(name: str) -> list[str]:
    """An array of pyproject.toml. Python 3.10 has no tomllib."""
    found = re.search(rf"(?ms)^{name} = (\[[^\n]*\]$|\[[^\n]*\n.*?^\])", PROJECT)
    assert found is not None, name
    values: list[str] = ast.literal_eval(found[1])
    return values


def repository() -> str:
    found = re.search(r'(?m)^Source = "(.*)"', PROJECT)
    assert found is not None
    return found[1]


def test_links_of_the_description_are_absolute(setup: dict[str, Any]) -> None:
    text = setup["absolute_links"]((ROOT / "README.md").read_text(encoding="utf-8"))
    prose = "".join(setup["CODE"].split(text)[::2])
    links = re.findall(r'(?:\]\(|(?:src|href)=")([^)"\s]+)', prose)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("[a](docs/a.md#b)", "[a]({0}/blob/main/docs/a.md#b)"),
        ("![a](docs/b.webp)", "![a]({1}/main/docs/b.webp)"),
        ("[![a](b.png)](c.md)", "[![a]({1}/main/b.png)]({0}/blob/main/c.md)"),
        ('<a href="x.md"><img src="y.gif"></a>',
         '<a href="{0}/blob/main/x.md"><img src="{1}/main/y.gif"></a>'),
        ("[a](https://x.y) [b](#c)", "[a](https://x.y) [b](#c)"),
        ("```\nf[0](x)\n```\n[a](b)", "```\nf[0](x)\n```\n[a]({0}/blob/main/b)"),
    ],
)  # fmt: skip
def test_absolute_links(given: str, wanted: str, setup: dict[str, Any]) -> None:
    raw = repository().replace("github.com", "raw.githubusercontent.com")
    assert setup["absolute_links"](given) == wanted.format(repository(), raw)


def test_one_address_of_the_project() -> None:
    """It is a placeholder; on the day of publication one search finds it everywhere."""
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()  # fmt: skip
    if not files:
        pytest.skip("not a git checkout")
    found = set()
    for name in files:
        path = ROOT / name
        if path.suffix in (".md", ".toml", ".yml", ".yaml", ".cff", ".py", "") and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= set(re.findall(r"https://github\.com/[\w-]+/vkchi\b", text))
    assert found == {repository()}


def test_the_version_is_that_of_the_newest_release_in_the_changelog(setup: dict[str, Any]) -> None:
    released = re.findall(
        r"(?m)^## \[(\d[\w.]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    )
    assert setup["base_version"]() == str(ti.__version__) == released[0]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {released[0]}\n" in citation
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", setup["tagged_version"]())


def test_classifiers() -> None:
    classifiers = array("classifiers")
    versions = [c.rpartition(" ")[2] for c in classifiers if ":: 3." in c]
    assert versions == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert [c for c in classifiers if c.startswith("Operating")] == [
        "Operating System :: POSIX :: Linux"
    ]
    assert not any(c.startswith("License") for c in classifiers)  # `license` says it, by SPDX
    assert array("license-files") == ["LICENSE", "NOTICE"]
    assert all((ROOT / name).is_file() for name in array("license-files"))


def test_the_extra_all_has_the_extras_of_users() -> None:
    section = re.search(r"(?ms)^\[project.optional-dependencies\]\n(.*?)^\[", PROJECT)
    assert section is not None
    names = set(re.findall(r"(?m)^(\w+) = \[", section[1]))
    (listed,) = array("all")
    taken = set(listed.removeprefix("vkchi[").removesuffix("]").split(","))
    others = {"all", "torch", "distributed", "jax", "cuda", "docs", "dev"}
    assert names - taken == others and taken <= names


def test_files_of_the_sdist_and_the_wheel() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").split()
    assert {"docs", "tests", "examples", "scripts"} <= set(manifest)
    assert {"CHANGELOG.md", "Makefile", "mkdocs.yml"} <= set(manifest)
    assert '"py.typed"' in PROJECT and (ROOT / "vkchi" / "py.typed").is_file()


# --- versions of tags ----------------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The files from which setup.py reads the version, in no git repository."""
    (tmp_path / "vkchi").mkdir()
    for name in ("setup.py", "pyproject.toml", "vkchi/__init__.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("case", ["tag", "a commit after the tag", "no tags", "no git"])
def test_versions_by_tags(case: str, sources: Path, setup: dict[str, Any]) -> None:
    pytest.importorskip("setuptools_scm")
    if case != "no git":
        if shutil.which("git") is None:
            pytest.skip("git is not here")
        git(sources, "init")
        git(sources, "add", ".")
        git(sources, "commit", "-m", "one")
    if "tag" in case.split():
        git(sources, "tag", "v7.8.0")
    if "after" in case:
        git(sources, "commit", "--allow-empty", "-m", "two")
    base = setup["base_version"]()
    wanted = {"tag": "7.8.0", "a commit after the tag": "7.8.1.dev1"}.get(case, base)
    assert runpy.run_path(str(sources / "setup.py"), run_name="setup")["tagged_version"]() == wanted


# --- files of the repository ---------------------------------------------------------------------


def parse(name: str) -> Any:
    """A YAML file of the repository; skips the test without the package yaml."""
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_urls_of_the_project() -> None:
    section = re.search(r"(?ms)^\[project.urls\][^\n]*\n(.*?)^\[", PROJECT)
    assert section is not None
    urls = dict(re.findall(r'(?m)^(\w+) = "(.*)"', section[1]))
    assert set(urls) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    site = re.sub(r"//github.com/([\w-]+)/(\w+)", r"//\1.github.io/\2/", repository())
    assert urls.pop("Documentation") == site  # GitHub Pages, by .github/workflows/docs.yml
    assert all(url.startswith(repository()) for url in urls.values())
    for url in urls.values():
        path = re.fullmatch(r".*/(?:blob|tree)/main/(.*)", url)
        assert path is None or (ROOT / path[1]).exists()


@pytest.mark.parametrize(
    "name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "NOTICE"]
)
def test_files_for_contributors(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_the_citation() -> None:
    found = parse("CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= found.keys()
    assert found["repository-code"] == repository() and found["license"] == "Apache-2.0"


def test_issue_templates() -> None:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    names = {path.name for path in folder.glob("*.yml")}
    assert names == {"bug.yml", "feature.yml", "config.yml"}
    assert parse(".github/ISSUE_TEMPLATE/config.yml")["contact_links"]
    for name in names - {"config.yml"}:
        found = parse(f".github/ISSUE_TEMPLATE/{name}")
        assert found["name"] and found["description"] and found["body"]


def test_hooks_before_commits() -> None:
    (hooks,) = parse(".pre-commit-config.yaml")["repos"]
    assert {hook["id"] for hook in hooks["hooks"]} == {"ruff-format", "ruff-check", "mypy"}
    assert {hook["language"] for hook in hooks["hooks"]} == {"system"}  # versions of the extra dev


def test_workflows() -> None:
    folder = ROOT / ".github" / "workflows"
    assert {path.stem for path in folder.glob("*.yml")} == {"docs", "release", "tests"}
    jobs = parse(".github/workflows/tests.yml")["jobs"]
    matrix = jobs["unit"]["strategy"]["matrix"]
    classified = [c.rpartition(" ")[2] for c in array("classifiers") if ":: 3." in c]
    assert matrix["python"] == classified
    assert [os.rpartition("-")[0] for os in matrix["os"]] == ["ubuntu", "windows", "macos"]
    assert jobs["whole"]["steps"][-1] == {"run": "make test"}


def test_the_workflow_runs_the_tests_of_make_unit() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"(?m)^unit:\n\t(.*)$", makefile)
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert recipe is not None and recipe[1].endswith(" scripts/unit.py")
    assert re.findall(r"(?m)run: python (.*)$", workflow) == ["scripts/unit.py"]

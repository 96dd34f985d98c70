"""Build steps that pyproject.toml cannot express. Metadata are in pyproject.toml.

- The version is that of the newest tag `v*` (setuptools-scm). Without tags, git or setuptools-scm
  it is the one in vkchi/__init__.py.
- The long description is README.md with absolute links.
- The wheel has the examples, as the folder `vkchi_examples` beside `vkchi`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
INIT = ROOT / "vkchi" / "__init__.py"
VERSION = re.compile(r'(?<=__version__ = _Version\(")[^"]+')
SOURCE = re.compile(r'(?m)^Source = "([^"]+)"')
LINK = re.compile(r'(\]\(|(?:src|href)=")(?![a-z]+:|#)([^)"\s]+)')
CODE = re.compile(r"(?ms)^(```.*?^```)")
PICTURES = (".png", ".gif", ".webp", ".svg", ".jpg")
EXAMPLES = ("*.py", "*.ipynb")


def base_version() -> str:
    """Return the version in the sources."""
    found = VERSION.search(INIT.read_text(encoding="utf-8"))
    assert found is not None
    return found[0]


def tagged_version() -> str:
    """Return the version of the newest tag, or that of the sources."""
    try:
        from setuptools_scm import get_version
        from setuptools_scm.version import guess_next_dev_version
    except ImportError:
        return base_version()

    def scheme(version: Any) -> str:
        is_tagged = str(version.tag) not in ("0.0", "0")
        return guess_next_dev_version(version) if is_tagged else base_version()

    try:
        return str(
            get_version(root=str(ROOT), version_scheme=scheme, local_scheme="no-local-version")
        )
    except LookupError:  # no git, and no sdist
        return base_version()


def absolute_links(text: str) -> str:
    """Make a document's relative links absolute, to the repository in pyproject.toml."""
    source = SOURCE.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert source is not None
    repository = source[1]
    raw = repository.replace("github.com", "raw.githubusercontent.com", 1)

    def absolute(found: re.Match[str]) -> str:
        path = found[2]
        place = f"{raw}/main" if path.endswith(PICTURES) else f"{repository}/blob/main"
        return f"{found[1]}{place}/{path}"

    parts = CODE.split(text)  # every second one is code
    return "".join(part if k % 2 else LINK.sub(absolute, part) for k, part in enumerate(parts))


class BuildPackage(build_py):
    """Build the package with its version and the examples."""

    def run(self) -> None:
        """Copy the sources to a fresh folder, so that no deleted module is left in a wheel."""
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        built = Path(self.build_lib)
        init = built / "vkchi" / "__init__.py"
        text = init.read_text(encoding="utf-8")
        init.write_text(VERSION.sub(self.distribution.get_version(), text), encoding="utf-8")
        folder = built / "vkchi_examples"
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in EXAMPLES:
            for path in sorted((ROOT / "examples").glob(pattern)):
                shutil.copy2(path, folder / path.name)


if __name__ == "__main__":
    setup(
        version=tagged_version(),
        long_description=absolute_links((ROOT / "README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
        cmdclass={"build_py": BuildPackage},
    )

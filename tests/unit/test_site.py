"""The documentation as a site: every link leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"""<(?:script|img|link)[^>]*(?:src|href)=["'](?:https?:)?//[^"']*["'][^>]*>""")


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_it_is_built_and_stands_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    outside = {m for page in pages for m in LOADED.findall(page.read_text(encoding="utf-8"))}
    assert {m for m in outside if "canonical" not in m} == set()
    text = (tmp_path / "reference" / "index.html").read_text(encoding="utf-8")
    assert "vkchi.ad.Tape" in text

"""scripts/vulkan-driver, with tools that install nothing.

Their output is that of Debian's, and the script's output there: `scripts/old-mesa` runs it on a
Debian of its own, whose Mesa is 22.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the script is Debian's")

ROOT = Path(__file__).parents[2]
OLD = "software\t1.3.230\tllvmpipe (LLVM 15.0.6, 256 bits)\tllvmpipe Mesa 22.3.6 (LLVM 15.0.6)"
NEW = "\t".join(
    ("software", "1.4.305", "llvmpipe (LLVM 15.0.6, 256 bits)",
    "llvmpipe Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)")
)  # fmt: skip
HARDWARE = "hardware\t1.4.303\tNVIDIA H100\tNVIDIA 570.1"
SWIFTSHADER = "software\t1.3.0\tSwiftShader Device (Subzero)\tSwiftShader driver"

# The name of each tool that could change the machine, or look at it, and its replacement.
TOOLS = {
    "python": 'case "$1" in -c) exit 0;; esac; cat "$STATE/devices"',
    "id": "echo 0",
    "apt-cache": "echo '  Candidate: 22.3.6-1+deb12u1'",
    "dpkg-query": "printf 22.3.6-1+deb12u1",
    "tee": 'cat >>"$STATE/list"',
    "rm": 'echo "rm $*" >>"$STATE/calls"',
    "chmod": "true",
    "sudo": "exit 1",
    "apt-get": r"""
        echo "$*" >>"$STATE/calls"
        case "$*" in
        indextargets*) . /etc/os-release; echo "${VERSION_CODENAME:-} main http://archive/" ;;
        *update*sourcelist=*) [ ! -e "$STATE/no-backports" ] ;;
        *install*-backports*) cp "$STATE/newer" "$STATE/devices" ;;
        esac""",
}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Run the script where these devices are: (status, output, the calls of apt-get)."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "STATE": str(tmp_path),
        "PYTHON": str(tools / "python"), "XDG_CACHE_HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),  # nothing is removed: `rm` is one of the tools
    }  # fmt: skip

    def act(*options: str, devices: str, newer: str = NEW) -> tuple[int, str, str]:
        (tmp_path / "devices").write_text(devices + "\n", encoding="utf-8")
        (tmp_path / "newer").write_text(newer + "\n" if newer else "", encoding="utf-8")
        (tmp_path / "calls").write_text("", encoding="utf-8")
        done = subprocess.run(
            [str(ROOT / "scripts" / "vulkan-driver"), *options],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return (
            done.returncode,
            done.stdout + done.stderr,
            (tmp_path / "calls").read_text(encoding="utf-8"),
        )

    return act


def test_an_old_mesa_is_kept_and_said_to_be_slow(run: Callable[..., tuple[int, str, str]]) -> None:
    status, said, calls = run(devices=OLD)
    assert (status, calls) == (0, "")
    assert said.splitlines()[1:] == [
        "vulkan-driver: Mesa 22.3.6 is up to ten times slower than Mesa 25; `make driver` installs "
        "that, where the distribution has it"
    ]


@pytest.mark.parametrize("devices", [NEW, SWIFTSHADER, f"{HARDWARE}\n{OLD}"])
@pytest.mark.parametrize("options", [[], ["--newest"]])
def test_fast_machine_changes_nothing(
    options: list[str], devices: str, run: Callable[..., tuple[int, str, str]]
) -> None:
    status, said, calls = run(*options, devices=devices)
    assert status == 0 and "install " not in calls
    assert "slower" not in said
    assert ("nothing faster to install" in said) == bool(options)


def test_the_newest_is_installed(run: Callable[..., tuple[int, str, str]]) -> None:
    status, said, calls = run("--newest", devices=OLD)
    assert status == 0, said
    assert "-backports mesa-vulkan-drivers" in calls
    assert "Mesa 25.0.7" in said.splitlines()[-1]


def test_a_newest_that_cannot_be_had(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "no-backports").write_text("", encoding="utf-8")
    status, said, calls = run("--newest", devices=OLD)
    assert status == 1
    assert "backports cannot be had: keeping to the distribution's Mesa" in said
    assert "vulkan-driver: Mesa 22.3.6 stays: " in said.splitlines()[-1]


def test_a_newest_that_is_not_seen(run: Callable[..., tuple[int, str, str]]) -> None:
    status, said, _ = run("--newest", devices=OLD, newer="")
    assert status == 1
    assert said.splitlines()[-1].startswith("vulkan-driver: still no Vulkan 1.3 device; ")


def test_make_knows_the_command() -> None:
    told = subprocess.run(
        ["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True
    )
    assert "make driver" in told.stdout
    asked = subprocess.run(
        ["make", "-C", str(ROOT), "-n", "driver"], capture_output=True, text=True, check=True
    )
    assert "scripts/vulkan-driver --newest" in asked.stdout

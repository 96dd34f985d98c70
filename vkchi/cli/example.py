"""`vkchi example [NAME ...]`: list and run the examples.

Example:

    $ vkchi example mpm88 --headless --frames 30 --save out/mpm88
"""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import vkchi
from vkchi.cli.tree import SUCCESS, WrongCommandLine
from vkchi.errors import MissingPackageError

EXIT_STATUS = "exit status: that of the example; 1 a package is missing; 2 wrong command line"
PARENT = Path(vkchi.__file__).parents[1]  # of the package: a checkout, or site-packages
CHECKOUT, INSTALLED = "examples", "vkchi_examples"
PACKAGES = {"torch": "torch"}  # module imported by examples -> package that installs it
NO_EXAMPLES = {"viewer", "learning", "stage"}  # modules shared by the examples
DRAWS = re.compile(r"^    *(viewer|learning|stage)\.run\(", re.M)


def list_examples() -> dict[str, Path]:
    """Return the files of the examples by name: those of the checkout, else those that the wheel
    installed."""
    is_checkout = (PARENT / "pyproject.toml").is_file()
    folder = PARENT / (CHECKOUT if is_checkout else INSTALLED)
    found = {path.stem: path for path in sorted(folder.glob("*.py"))}
    return {name: path for name, path in found.items() if name not in NO_EXAMPLES}


def title_of(path: Path) -> str:
    """Return the first line of an example's docstring, or ""."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "vkchi example [NAME [--headless] [--frames N] [--save FOLDER] ...]"
    parser.epilog = EXIT_STATUS
    parser.add_argument("name", nargs="?", help="the example; without it, they are listed")
    parser.add_argument("--headless", action="store_true", help="open no window")
    parser.add_argument("--frames", help="number of frames")
    parser.add_argument("--save", metavar="FOLDER", help="folder for pictures and a film")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the named example with the arguments around its name; return the exit status.

    Without a name, print the list of examples. Raises WrongCommandLine for an unknown name,
    MissingPackageError if no examples are installed.
    """
    examples = list_examples()
    if not examples:
        raise MissingPackageError(f"no examples are in {PARENT}: install vkchi anew")
    if not given.name:
        print("usage: vkchi example NAME [--headless] [--frames N] [--save FOLDER] ...")
        for name, path in examples.items():
            print(f"  {name:18} {title_of(path)}")
        print(f"pictures of them: {gallery()}")
        return SUCCESS
    if given.name not in examples:
        raise WrongCommandLine(
            f"there is no example {given.name!r}; there are {', '.join(examples)}"
        )
    before = ["--headless"] if given.headless else []
    before += ["--frames", given.frames] if given.frames is not None else []
    before += ["--save", given.save] if given.save is not None else []
    return run_file(examples[given.name], [*before, *given.rest])


def gallery() -> str:
    """Return the page of examples: a file in a checkout, else a page of the project's site."""
    from importlib.metadata import PackageNotFoundError, metadata

    if (PARENT / "pyproject.toml").is_file():
        return "docs/examples.md"
    with suppress(PackageNotFoundError):
        for row in metadata("vkchi").get_all("Project-URL") or ():
            title, _, address = row.partition(", ")
            if title == "Documentation":
                return f"{address}examples.html"
    return "docs/examples.md"


def is_drawn(path: Path) -> bool:
    """True if the example calls `run` of a module that draws; False if it only prints."""
    return DRAWS.search(path.read_text(encoding="utf-8")) is not None


def arguments_for(path: Path, arguments: Sequence[str]) -> list[str]:
    """Return the arguments, without the options for drawing if the example only prints.

    If it drops `--save`, it says so on stderr.
    """
    if is_drawn(path):
        return list(arguments)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--headless", action="store_true")
    for option in ("--frames", "--save"):
        parser.add_argument(option)
    options, others = parser.parse_known_args(arguments)
    if options.save is not None:
        print(f"{path.stem} prints; it draws nothing that --save could save", file=sys.stderr)
    return others


def run_file(path: Path, arguments: Sequence[str]) -> int:
    """Run an example as `python PATH ARGUMENTS` does, in this process.

    Returns the exit status: 1, after a message, if a known package is missing.
    """
    before, folder = sys.argv, str(path.parent)
    sys.argv = [str(path), *arguments_for(path, arguments)]
    sys.path.insert(0, folder)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except (MissingPackageError, ModuleNotFoundError) as e:
        package = PACKAGES.get(getattr(e, "name", None) or "")
        if isinstance(e, ModuleNotFoundError) and package is None:
            raise
        wanted = f"{path.stem} needs {package}: pip install {package}" if package else e
        print(wanted, file=sys.stderr)
        return 1
    finally:
        sys.argv = before
        sys.path.remove(folder)
    return 0

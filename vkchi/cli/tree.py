"""The tree of commands: `vkchi COMMAND ...`, parsed by argparse.

A row names a command and the function that adds its arguments to a parser. That function also sets
the default `run`, a function from the parsed arguments to the exit status. The module of a command
is imported when the command is used. Options and other words may be mixed, except words that go to
a program (`rest`).

    COMMANDS = (Command("doctor", "check this machine", "vkchi.cli.doctor:configure"),)

    def configure(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")
        parser.set_defaults(run=run)
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

from vkchi.errors import VkchiError
from vkchi.tuples import NamedTuple

SUCCESS, FAILURE, WRONG_COMMAND_LINE, INTERRUPTED = 0, 1, 2, 130  # 130: as shells have it
EXIT_STATUS = "exit status: 0 success; 1 failure; 2 wrong command line; 130 interrupted"
AFTER_DASHES, AFTER_NAME = "after --", "after the first word"  # words that go to a program
CACHE = "vkchi.cli.cache:configure_"


class Command(NamedTuple):
    """A command, or a group of commands.

    - place: MODULE:FUNCTION that adds the arguments, for a group those of all its commands.
    - rest: the words that are not parsed, as `given.rest`.
    """

    name: str
    summary: str
    place: str
    commands: tuple[Command, ...] = ()
    rest: str = ""


class WrongCommandLine(Exception):
    """Error: arguments that a command cannot use. `main` prints it with the usage line."""


CACHE_COMMANDS = (
    Command("ls", "list entries", CACHE + "ls"),
    Command("show", "show an entry: header, key, source, IR and SPIR-V", CACHE + "show"),
    Command("why", "print the differences between entries of a kernel", CACHE + "why"),
    Command("diff", "compare the IR of two entries", CACHE + "diff"),
    Command("report", "write an HTML page about the entries", CACHE + "report"),
    Command("stats", "print the number, size and uses of entries", CACHE + "stats"),
    Command("verify", "check checksums, formats and SPIR-V of all entries", CACHE + "verify"),
    Command("prune", "delete leftover files, and entries beyond the limits", CACHE + "prune"),
    Command("clear", "delete all entries", CACHE + "clear"),
    Command("pack", "export entries to an archive", CACHE + "pack"),
    Command("unpack", "import the entries of an archive", CACHE + "unpack"),
)
ROOT = Command("vkchi", "Kernels in Python for every Vulkan device.", "vkchi.cli.tree:configure", (
    Command("doctor", "check the Vulkan setup of this machine", "vkchi.cli.doctor:configure"),
    Command("example", "list and run the examples", "vkchi.cli.example:configure",
            rest=AFTER_NAME),
    Command("compile", "compile kernels for a device without running them",
            "vkchi.cli.compile:configure", rest=AFTER_DASHES),
    Command("explain", "print how a kernel would run, and why",
            "vkchi.cli.compile:configure_explain", rest=AFTER_DASHES),
    Command("cache", "inspect and manage the disk cache of compiled kernels",
            "vkchi.cli.cache:configure", CACHE_COMMANDS),
    Command("ir", "check, transform and interpret IR text", "vkchi.cli.ir:configure"),
))  # fmt: skip


class ShowVersion(argparse.Action):
    """Print the version and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from vkchi import __version__

        print(f"vkchi {__version__}")
        parser.exit()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version")


# --- parsing -------------------------------------------------------------------------------------


def main(argv: Sequence[str], root: Command = ROOT) -> int:
    """Run the command that `argv` names, and return its exit status.

    A VkchiError is printed on stderr, and returns FAILURE. Errors in the command line return
    WRONG_COMMAND_LINE.
    """
    parser = argparse.ArgumentParser()
    try:
        parser, given = parse(argv, root)
        status: int = given.run(given)
        return status
    except SystemExit as e:  # argparse has printed help or the error
        return e.code if isinstance(e.code, int) else WRONG_COMMAND_LINE
    except WrongCommandLine as e:
        print(f"{parser.format_usage()}{parser.prog}: error: {e}", file=sys.stderr)
        return WRONG_COMMAND_LINE
    except VkchiError as e:
        print(e, file=sys.stderr)
        return FAILURE


def parse(
    argv: Sequence[str], root: Command = ROOT
) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Return the parser of the command that `argv` names, and its parsed arguments.

    Words that the command does not parse are in `rest`. Raises SystemExit after help, the version,
    or an error was printed.
    """
    path, words = [root], list(argv)
    if "--version" in words[: index_of_word(words, path)]:
        make_parser(path).parse_args(["--version"])
    while path[-1].commands:
        nested = path[-1].commands if path[-1] is not root else ()  # root: would import them all
        at = index_of_word(words, [path[-1], *nested])
        path.append(find_command(path, words, at))
        del words[at]
    parser, command = make_parser(path), path[-1]
    rest: list[str] = []
    if command.rest == AFTER_DASHES and "--" in words:
        at = words.index("--")
        words, rest = words[:at], words[at + 1 :]
    elif command.rest == AFTER_NAME:
        at = index_of_word(words, path)
        words, rest = words[: at + 1], words[at + 1 :]
    given = parser.parse_intermixed_args(words)
    given.rest = rest
    return parser, given


def find_command(path: Sequence[Command], words: Sequence[str], at: int) -> Command:
    """Return the command of the group `path[-1]` whose name is `words[at]`.

    Raises SystemExit, after a message, if there is no such word or command.
    """
    group, parser = path[-1], make_parser(path)
    if at == len(words):
        parser.parse_args(words)  # exits for --help and unknown options
        parser.print_help(sys.stderr)
        parser.exit(WRONG_COMMAND_LINE)
    for command in group.commands:
        if command.name == words[at]:
            return command
    from difflib import get_close_matches

    names = [command.name for command in group.commands]
    close = get_close_matches(words[at], names, 1)
    help_ = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
    parser.error(f"there is no command {words[at]!r}; {help_}")


def index_of_word(words: Sequence[str], commands: Sequence[Command]) -> int:
    """Return the index of the first word that is neither an option nor an option's value.

    `commands` define the options. Without such a word the index is the number of words.
    """
    at = 0
    if words and words[0].startswith("-"):
        valued = options_with_values(commands)
        while at < len(words) and words[at].startswith("-"):
            at += 1 + (words[at] in valued)
    return min(at, len(words))


def options_with_values(commands: Sequence[Command]) -> set[str]:
    """Return the option strings of these commands that are followed by a value."""
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    for command in commands:
        configure_of(command)(parser)
    return {name for action in parser._actions if action.nargs != 0
            for name in action.option_strings}  # fmt: skip


def configure_of(command: Command) -> Callable[[argparse.ArgumentParser], None]:
    """Import a command's module, and return the function that adds its arguments to a parser."""
    module, _, name = command.place.partition(":")
    found: Callable[[argparse.ArgumentParser], None]
    found = getattr(importlib.import_module(module), name)
    return found


def make_parser(path: Sequence[Command]) -> argparse.ArgumentParser:
    """Return the parser of the last command of `path`, with the options of the groups around it."""
    command = path[-1]
    parser = argparse.ArgumentParser(
        " ".join(step.name for step in path),
        description=f"{command.summary[0].upper()}{command.summary[1:].rstrip('.')}.",
        epilog=EXIT_STATUS, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.color = False  # type: ignore[attr-defined]  # Python 3.14 has escapes in usage lines
    for step in path[1:] or path:
        configure_of(step)(parser)
    if command.commands:
        parser.usage = usage_of(parser) + " COMMAND ..."
        rows = [f"  {c.name:21} {c.summary}" for c in command.commands]
        more = f"{parser.prog} COMMAND --help lists the arguments of a command."
        parser.epilog = "\n".join(["commands:", *rows, "", more, parser.epilog or ""])
    if command.rest == AFTER_DASHES:
        parser.usage = usage_of(parser) + " [-- WORD ...]"
    return parser


def usage_of(parser: argparse.ArgumentParser) -> str:
    """Return the usage line without its title."""
    return parser.format_usage().removeprefix("usage: ").rstrip()

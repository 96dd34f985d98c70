"""Grids and particles on 1, 2, 3, 4 and 8 processes: `checks` and `particle_checks`, run by
`groups`."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytest.importorskip("torch.distributed")
pytestmark = [
    pytest.mark.device, pytest.mark.one_driver,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the ranks are forked"),
]  # fmt: skip
spec = importlib.util.spec_from_file_location("distributed_groups", HERE / "groups.py")
assert spec is not None and spec.loader is not None
groups = importlib.util.module_from_spec(spec)
spec.loader.exec_module(groups)


def names_of(table: str, file: str = "checks.py") -> list[str]:
    """A list of names in a file of checks, which is not imported here."""
    for node in ast.parse((HERE / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table:
            found: list[str] = ast.literal_eval(node.value)
            return found
    raise KeyError(table)


def failures_in(found: list[dict[str, dict[str, str]]], expected: str = "") -> str:
    """Failures of all groups, except those of the rank that must not come to an end."""
    return "\n".join(
        f"group {k}, {name}, rank {rank}: {text}"
        for k, one in enumerate(found)
        for name, texts in one.items()
        for rank, text in texts.items()
        if rank != ("0" if "first" in name else expected)
    )


@pytest.mark.parametrize("sizes", [[1, 2, 3], [4, 8]], ids=str)
def test_all_checks_pass_in_groups_of(sizes: list[int], tmp_path: Path) -> None:
    lists = [(size, names_of("BASIC" if size < 8 else "LARGE")) for size in sizes]
    found = groups.run_groups(lists, tmp_path, 240)
    assert len(found) == len(sizes) and not failures_in(found)


def test_reductions_and_checkpoints_in_groups(tmp_path: Path) -> None:
    """Each group reads the checkpoint of the one before."""
    names = names_of("LASTING", "lasting_checks.py")
    found = groups.run_groups([(size, names) for size in (2, 1, 8, 3)], tmp_path, 240)
    assert len(found) == 4 and not failures_in(found)


def test_rare_uses_on_two_processes(tmp_path: Path) -> None:
    found = groups.run_groups([(2, names_of("RARE", "rare_checks.py"))], tmp_path, 600)
    assert len(found) == 1 and not failures_in(found)


def test_halos_are_reduced_and_particles_migrate(tmp_path: Path) -> None:
    tables = {1: "SMALL", 2: "SMALL", 3: "SMALL", 4: "LARGE", 8: "LARGE"}
    lists = [(size, names_of(table, "particle_checks.py")) for size, table in tables.items()]
    found = groups.run_groups(lists, tmp_path, 240)
    assert len(found) == len(lists) and not failures_in(found)


def test_failures_of_a_rank_are_errors_on_the_others(tmp_path: Path) -> None:
    """Rank 1 is killed, hangs or raises."""
    names = [*names_of("FAILURES"), "a_rank_is_killed_while_it_saves"]
    starts = ["start_patient" if "killed" in name else "start_short" for name in names]
    found = groups.run_groups([(3, list(pair)) for pair in zip(starts, names)], tmp_path, 40)
    assert len(found) == len(names) and not failures_in(found, "1")


def test_groups_form_or_are_errors_and_ranks_that_disagree_get_errors(tmp_path: Path) -> None:
    names = [[name] for table in ("UNFORMED", "FORMED") for name in names_of(table)]
    names += [["start_short", name] for name in names_of("DISAGREEMENTS")]
    found = groups.run_groups([(3, one) for one in names], tmp_path, 30)
    assert len(found) == len(names) and not failures_in(found)

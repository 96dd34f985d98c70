"""`pytest --like-gpu` takes devices for cards in all that capabilities say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import look_like
from vkchi.target.caps import FULL, Caps
from vkchi.tuples import NamedTuple
from vkchi.vk import physical


class Row(NamedTuple):
    """Properties of a device that matter here."""

    caps: Caps


def test_a_processor_is_taken_for_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    processor: Any = lambda *args: Row(FULL._replace(kind="cpu", subgroup_size=8))  # noqa: E731
    monkeypatch.setattr(physical, "read_physical", processor)
    look_like("gpu")
    (row,) = physical.read_all(None, [0])  # type: ignore[arg-type]
    assert not row.caps.is_cpu

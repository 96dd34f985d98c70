"""Long chains of inlined calls are cut in messages."""

from __future__ import annotations

from vkchi.span import Span, render_chain


def chain_of(count: int) -> Span:
    """A span that so many calls lead to, of functions f0 (the innermost), f1, ..."""
    span = None
    for k in reversed(range(count + 1)):
        span = Span("a.py", k + 1, 1, k + 1, 2, f"f{k}", span)
    assert span is not None
    return span


def test_short_chains_are_whole() -> None:
    lines = render_chain(chain_of(8))
    assert lines == [f"      in f{k}(), called from f{k + 1}() at a.py:{k + 2}:1" for k in range(8)]


def test_long_chains_have_a_count_in_the_middle() -> None:
    lines = render_chain(chain_of(128))
    assert len(lines) == 6 and lines[3] == "      ... 123 more calls ..."
    assert "in f2()" in lines[2] and "in f126()" in lines[4] and "in f127()" in lines[5]

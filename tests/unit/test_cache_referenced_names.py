"""Comments in a function's source, and strings that only look like comments."""

from __future__ import annotations

import pytest

from vkchi.cache.referenced_names import without_comments


@pytest.mark.parametrize(
    ("text", "bare", "lines"),
    [
        ("x = 1\n", "x = 1", (0, 1)),
        ("x = 1  # one\n", "x = 1", (0, 1)),
        ("x = 1\n# one\ny = 2\n", "x = 1\ny = 2", (0, 2, 3)),
        ("x = 1\n\n   #\ny = 2", "x = 1\n\ny = 2", (0, 1, 3)),
        ("x = '# one'\n", "x = '# one'", (0, 1)),
        ("x = '# one'  # two\n", "x = '# one'", (0, 1)),
        ('x = """\n# one\n"""\n', 'x = """\n# one\n"""', (0, 1, 2, 3)),
        ("x = f'{y}#'\n", "x = f'{y}#'", (0, 1)),
        (
            "    def f():\n        # a\n        x = 'b'\n",
            "    def f():\n        x = 'b'",
            (0, 2, 3),
        ),
        ("x = [1,  # it's\n # one\n 2]", "x = [1,\n 2]", (0, 2)),
        ("x = 1\f # one\ny = 2", "x = 1\ny = 2", (0, 1)),
        ("x = 'open # one\n", "x = 'open # one", (0, 1)),
    ],
)
def test_comment_detection(text: str, bare: str, lines: tuple[int, ...]) -> None:
    found, left = without_comments(text)
    assert found == bare
    assert left == lines

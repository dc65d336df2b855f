"""Short loops of a program are written out where there are many."""

import pytest

from pykittens.targets import lines
from pykittens.targets.lines import written_out

PROGRAM = [
    "    UNROLL for (int i = 0; i < 2; ++i) t[i] = row_of<16>(i) + first;",
    "    UNROLL for (int i = 0; i < 8; i += 4) t[i / 2] = pack(x[i], x[i + 1]);",
    "    UNROLL for (int i = 0; i < 3; ++i) t[i] = 0;",
    "    NO_UNROLL for (int i = 0; i < 2; ++i) t[i] = 0;",
    "    UNROLL for (int at = 0; at < 4; at += 4) {",
    "        UNROLL for (int i = 0; i < 1; ++i) {",
    "            if (at > 2) continue;",
    "        }",
    "    }",
    "    UNROLL for (int k = 0; k < 1; ++k) {",
    "        x[k] = 1;",
    "    }",
]


def test_few_short_loops_stay(monkeypatch):
    monkeypatch.setattr(lines, "MANY", 4)
    assert written_out(PROGRAM) is PROGRAM


def test_many_are_written_out(monkeypatch):
    monkeypatch.setattr(lines, "MANY", 3)
    assert written_out(PROGRAM) == [
        "    t[0] = row_of<16>(0) + first;",
        "    t[1] = row_of<16>(1) + first;",
        "    t[0 / 2] = pack(x[0], x[0 + 1]);",
        "    t[4 / 2] = pack(x[4], x[4 + 1]);",
        *PROGRAM[2:9],  # three iterations; no unrolled loop; and blocks that `continue` ends
        "    {",
        "        const int k = 0;",
        "        x[k] = 1;",
        "    }",
    ]


@pytest.mark.parametrize("body", ["{ a[i] = 0; }", "for (int j = 0; j < i; ++j) a[j] = 0;"])
def test_loops_around_other_statements_stay(monkeypatch, body):
    monkeypatch.setattr(lines, "MANY", 1)
    program = [f"UNROLL for (int i = 0; i < 2; ++i) {body}"]
    assert written_out(program) == program

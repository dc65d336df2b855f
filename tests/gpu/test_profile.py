"""Profiles of launches on a GPU: every role has its row, in order, and the kernel computes what it always does."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict

import numpy as np
import pytest

from pykittens.analysis.timeline.profile import PARTS, Profile
from pykittens.analysis.timeline.spans import Activity, Span, Track, TrackKind
from pykittens.checker.report.profile import FORMS, as_text
from pykittens.cli import main
from tests.clocked import WIDTH, ring, words
from tests.conftest import EXAMPLES as FOLDER
from tests.mega.programs import LENGTH, added, cells, random_steps, sequential

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from examples.catalog import EXAMPLES, load  # noqa: E402  (needs PyTorch)

pytestmark = pytest.mark.gpu

MATMUL = load(next(e for e in EXAMPLES if e.name == "matmul"))


def of_tracks(profile: Profile) -> dict[Track, list[Span]]:
    found: dict[Track, list[Span]] = defaultdict(list)
    for span in profile.timeline.spans:
        found[span.track].append(span)
    return found


def check_order(profile: Profile) -> None:
    """Fail unless every track has spans that do not overlap, and turns of a stage follow one another."""
    tracks = of_tracks(profile)
    assert set(tracks) == set(profile.timeline.tracks)
    for track, spans in tracks.items():
        for one, other in itertools.pairwise(spans):
            assert one.start < one.end <= other.start < other.end, (one, other)
        if track.kind is TrackKind.STAGE:
            last: dict[str, Span] = {}
            for span in spans:
                if span.name in last:
                    order = list(Activity)
                    assert order.index(last[span.name].activity) < order.index(span.activity)
                last[span.name] = span
            turns = [int(s.name.split()[1]) for s in spans]
            assert turns == sorted(turns)
    assert profile.timeline.start >= 0
    assert profile.timeline.end < 1e9
    assert "no room" not in profile.timeline.note


def check_groups(profile: Profile, groups: set[str]) -> None:
    """Fail unless every block has these groups, whose time is what the table adds up."""
    timeline = profile.timeline
    for process in timeline.processes:
        own = {
            t.name for t in timeline.tracks if t.process == process and t.kind is TrackKind.GROUP
        }
        assert own == groups
    spent = sum(sum(s.ns.values()) for s in profile.spent)
    spans = [s for s in timeline.spans if s.track.kind is TrackKind.GROUP]
    assert spent == sum(s.end - s.start for s in spans)
    assert {p for s in profile.spent for p in s.ns} <= set(PARTS)


def test_a_ring():
    x = torch.randn(2, 3 * WIDTH, device="cuda")
    y = torch.zeros_like(x)
    profile = ring.profile(x, y)
    assert torch.equal(y, 2 * x)
    check_order(profile)
    check_groups(profile, {"producer", "warps"})
    fills = [s for s in profile.timeline.spans if s.activity is Activity.FILLING]
    assert len(fills) == 2 * 3
    assert profile.timeline.note.startswith(torch.cuda.get_device_name())


def test_every_word_at_which_roles_meet():
    x = torch.randn(2, 2 * WIDTH, device="cuda")
    y = torch.zeros(2, 3 * WIDTH, device="cuda")
    flags = torch.zeros(2, dtype=torch.int32, device="cuda")
    profile = words.profile(x, y, flags)
    assert torch.equal(y, torch.cat([x, x[:, :WIDTH]], 1))
    check_order(profile)
    check_groups(profile, {"storer", "warps 0", "warps 1"})


def test_a_product():
    a, b = (torch.randn(n, 1024, device="cuda").bfloat16() for n in (2048, 1536))
    plain, timed = (torch.zeros(2048, 1536, device="cuda").bfloat16() for _ in range(2))
    MATMUL.kernel(a, b, plain)
    profile = MATMUL.kernel.profile(a, b, timed)
    assert torch.equal(plain, timed)
    check_order(profile)
    check_groups(profile, {"producer", "storer", "consumers 0", "consumers 1"})
    tasks, steps = 16 * 6, 16
    turns = {
        (s.track.process, s.name)
        for s in profile.timeline.spans
        if s.track.name.startswith("inputs")
    }
    assert len(turns) == tasks * steps


def test_the_clock_of_the_timeline_is_that_of_events():
    a, b = (torch.randn(4096, 4096, device="cuda").bfloat16() for _ in range(2))
    c = torch.zeros(4096, 4096, device="cuda").bfloat16()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        MATMUL.kernel(a, b, c)
    start.record()
    MATMUL.kernel(a, b, c)
    end.record()
    torch.cuda.synchronize()
    ns = 1e6 * start.elapsed_time(end)
    timeline = MATMUL.kernel.profile(a, b, c).timeline
    assert "no room" not in timeline.note
    assert 0.7 * ns < timeline.end - timeline.start < 1.5 * ns


@pytest.mark.parametrize("seed", range(4))
def test_a_program_of_instructions(seed):
    rng = np.random.default_rng(seed)
    blocks = int(rng.integers(1, 133))
    steps = random_steps(rng, 4, int(rng.integers(10, 200)), blocks)
    x = np.full((4 + len(steps), LENGTH), np.nan, np.float32)
    x[:4] = rng.integers(-4, 5, (4, LENGTH))
    program = added(cells(blocks), steps)
    y = torch.from_numpy(x).cuda()
    with np.errstate(over="ignore"):
        wanted = sequential(steps, x)
    profile = program.profile(x=y)
    np.testing.assert_array_equal(y.cpu().numpy(), wanted)
    check_order_of_groups(profile)
    named = {str(s.args["instruction"]) for s in profile.timeline.spans if s.kind}
    assert named == {str(i) for i in program.instructions}
    assert {s.kind for s in profile.spent} == {"", *(i.kind.name for i in program.instructions)}


def check_order_of_groups(profile: Profile) -> None:
    """Fail unless the spans of every track are in order; blocks without an instruction fill no stage."""
    for spans in of_tracks(profile).values():
        for one, other in itertools.pairwise(spans):
            assert one.end <= other.start
    groups = {t for t in profile.timeline.tracks if t.kind is TrackKind.GROUP}
    assert groups <= set(of_tracks(profile))


def test_few_reads_are_the_first_ones():
    x = torch.randn(2, 3 * WIDTH, device="cuda")
    profile = ring.profile(x, torch.zeros_like(x), clock_reads=4)
    assert "later reads had no room" in profile.timeline.note
    assert all(len(s) <= 3 for t, s in of_tracks(profile).items() if t.kind is TrackKind.GROUP)


def test_the_command_writes_every_form(tmp_path, capsys):
    given = [f"--arg={n}=bf16[256,256]" for n in ("A", "B", "C")]
    for ending in FORMS:
        path = tmp_path / f"timeline{ending}"
        assert main(["profile", str(FOLDER / "06_matmul.py"), *given, "-o", str(path)]) == 0
        text = path.read_text(encoding="utf-8")
        assert "consumers 1" in text
        if ending == ".json":
            assert json.loads(text)["otherData"]["unit"] == "ns"
    assert "matmul: " in capsys.readouterr().out


def test_all_forms_of_a_profile():
    x = torch.randn(2, 3 * WIDTH, device="cuda")
    profile = ring.profile(x, torch.zeros_like(x))
    for form in FORMS.values():
        assert "producer" in as_text(profile, form)
    assert "producer" in profile._repr_html_()

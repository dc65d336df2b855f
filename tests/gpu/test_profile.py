"""Profiles of launches on a GPU: every role has its row, in order, and the kernel computes what it always does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pykittens.analysis.timeline.spans import Activity, TrackKind
from pykittens.checker.report.profile import FORMS, as_text
from pykittens.cli import main
from tests.clocked import WIDTH, check_groups, check_order, of_tracks, ring, words
from tests.conftest import EXAMPLES as FOLDER
from tests.mega.programs import LENGTH, added, cells, random_steps, sequential

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from examples.catalog import EXAMPLES, load  # noqa: E402  (needs PyTorch)

pytestmark = pytest.mark.gpu

MATMUL = load(next(e for e in EXAMPLES if e.name == "matmul"))


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


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(4))
def test_a_program_of_instructions(seed, dynamic):
    rng = np.random.default_rng(seed)
    blocks = int(rng.integers(1, 133))
    steps = random_steps(rng, 4, int(rng.integers(10, 200)), blocks)
    x = np.full((4 + len(steps), LENGTH), np.nan, np.float32)
    x[:4] = rng.integers(-4, 5, (4, LENGTH))
    program = added(cells(blocks, dynamic), steps)
    y = torch.from_numpy(x).cuda()
    with np.errstate(over="ignore"):
        wanted = sequential(steps, x)
    profile = program.profile(x=y)
    np.testing.assert_array_equal(y.cpu().numpy(), wanted)
    check_order(profile)
    named = {str(s.args["instruction"]) for s in profile.timeline.spans if s.kind}
    assert named == {str(i) for i in program.instructions}
    assert {s.kind for s in profile.spent} == {"", *(i.kind.name for i in program.instructions)}


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

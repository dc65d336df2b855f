"""The steps of examples/matmul_ladder/: right on any shape, without a fault, with the instructions that each adds."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

import pykittens as pk
from examples.catalog import LADDER, arrays, error
from pykittens.analysis.traffic.cache import traffic
from pykittens.runtime import cubin, nvrtc
from pykittens.runtime.arguments import check as check_arguments
from pykittens.types.devices import DEVICES
from tests import tolerance, views
from tests.conftest import EXAMPLES
from tests.targets.clean import frame, spills
from tests.test_examples import BF16, LAYOUTS, check_matmul, named, normal

FOLDER = EXAMPLES / "matmul_ladder"
STEMS = [step.file.removesuffix(".py") for step in LADDER]
SHAPES = [(1, 1, 1), (63, 129, 65), (130, 15, 0), (257, 300, 200)]
IDEA = re.compile(r"Matmul, step (\d) of 8\. The idea: .+\.")

compiled = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
disassembled = pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm is not installed")


@pytest.fixture(params=STEMS)
def step(request, example):
    """Each step as a module."""
    return example(request.param)


@pytest.mark.parametrize("size", SHAPES, ids=named)
def test_a_step_is_right_on_any_shape(step, size):
    m, n, k = size
    A, B = normal(0, (m, k), BF16), normal(1, (n, k), BF16)
    check_matmul(step, A, B, *views.contiguous((m, n), BF16))


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=named)
def test_a_step_is_right_in_any_layout(step, layout):
    A, B = (views.filled(layout, normal(i, (r, 100), BF16)) for i, r in enumerate((140, 70)))
    check_matmul(step, A, B, *layout((140, 70), BF16))


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_step_is_the_same_under_any_schedule(step, monkeypatch, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    A, B = normal(0, (70, 300), BF16), normal(1, (270, 300), BF16)
    check_matmul(step, A, B, *views.contiguous((70, 270), BF16))


def test_the_checker_finds_no_fault_in_a_step(step):
    A, B, C = arrays(LADDER[0], (70, 270, 270))
    report = pk.check(step.matmul, A, B, C, schedules=4, costs=False, compile=False)
    assert report.ok
    assert report.warnings == ()


def test_a_step_runs_and_says_how_far_it_is_off(step, capsys):
    step.main()
    words, said = capsys.readouterr().out.split(":")
    assert words == "relative error"
    assert 0 < float(said) < tolerance.unit(BF16)


@pytest.mark.parametrize("listed", LADDER, ids=lambda e: e.file)
def test_a_step_is_within_the_bound_that_the_table_gives(example, listed):
    given = arrays(listed, (65, 100, 130))
    module = example(listed.file.removesuffix(".py"))
    module.matmul(*given)
    assert error(given[-1], module.reference(*given[:-1])) <= listed.bound


def test_the_table_has_every_step_in_order():
    assert [EXAMPLES / step.file for step in LADDER] == sorted(FOLDER.glob("*.py"))


def test_a_step_says_at_the_top_which_idea_it_adds():
    for i, stem in enumerate(STEMS, start=1):
        opening = ast.get_docstring(ast.parse((EXAMPLES / f"{stem}.py").read_text("utf-8")))
        assert opening is not None
        found = IDEA.fullmatch(opening)
        assert found, opening
        assert int(found[1]) == i


def test_steps_differ_in_their_kernels_and_openings_alone():
    def rest(stem):
        tree = ast.parse((EXAMPLES / f"{stem}.py").read_text("utf-8"))
        return [
            ast.unparse(node)
            for node in tree.body[1:]
            if not (isinstance(node, ast.FunctionDef) and node.name == "matmul")
        ]

    assert [rest(stem) for stem in STEMS] == [rest(STEMS[0])] * len(STEMS)


def test_the_readme_has_every_step_in_order():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    files = [step.file.split("/")[1] for step in LADDER]
    assert re.findall(r"^## \[.+\]\((.+)\)$", text, re.MULTILINE) == files
    assert re.findall(r"^\| \[.+?\]\((.+?)\) \|", text, re.MULTILINE) == files


def matrices(offset=0):
    """Three of them; with an offset beyond the reach of the copy engine."""
    return [np.zeros((256, 256 + offset), BF16)[:, offset:] for _ in range(3)]


# GB that a step asks of the cache at 4096; how many blocks a multiprocessor holds makes no difference to it.
ASKED = [8.6, 4.3, 2.2, 2.2, 2.2, 1.6, 1.6, 1.1]


@pytest.mark.parametrize(("stem", "asked"), list(zip(STEMS, ASKED, strict=True)))
def test_a_step_asks_no_more_of_the_cache_than_its_tile_needs(example, stem, asked):
    kernel = example(stem).matmul
    recorded = kernel.record(check_arguments(kernel.parameters, tuple(matrices()), {}))
    found = traffic(recorded, dict.fromkeys("ABC", (4096, 4096)), {}, DEVICES["H200"])
    assert round(found.total.asked_bytes / 1e9, 1) == asked


@compiled
@pytest.mark.units
@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "unaligned"])
def test_a_step_compiles_clean(step, offset):
    made = step.matmul.compile(*matrices(offset), arch="sm_90a")
    assert (frame(made), spills(made)) == (0, [])
    if any(budget for _, budget in made.source.budgets):
        for role in made.resources.roles:
            assert role.used <= (role.budget or 255), role


# The instructions that the machine code of a step has in addition to the previous step's, and those it lacks.
NEW = {
    "01_warp": ({"HMMA.16816.F32.BF16", "LDSM", "STSM", "LDG"}, {"HGMMA", "UTMALDG"}),
    "02_tile": ({"HMMA.16816.F32.BF16"}, {"HGMMA"}),
    "03_warpgroup": ({"HGMMA.64x128x16.F32.BF16"}, {"HMMA.", "LDSM"}),
    "04_copies": ({"UTMALDG.2D", "SYNCS"}, {"LDG", "STSM"}),
    "05_pipeline": ({"UTMALDG.2D"}, {"USETMAXREG"}),
    "06_consumers": ({"HGMMA.64x256x16.F32.BF16", "USETMAXREG"}, {"UTMASTG"}),
    "07_persistent": ({"UTMASTG.2D", "STSM"}, {"UTMALDG.2D.MULTICAST", "UCGABAR"}),
    "08_neighbours": ({"UTMALDG.2D.MULTICAST", "UCGABAR"}, set()),
}


@compiled
@disassembled
@pytest.mark.units
@pytest.mark.parametrize("stem", NEW)
def test_the_machine_code_of_a_step_has_what_it_adds(example, stem):
    module = example(f"matmul_ladder/{stem}")
    sass = module.matmul.compile(*matrices(), arch="sm_90a").sass
    there, gone = NEW[stem]
    found = {word for word in there | gone if re.search(rf"\b{re.escape(word)}", sass)}
    assert (there - found, gone & found) == (set(), set())

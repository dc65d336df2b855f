"""Products of the library on a GPU, in every way of cutting them and with every epilogue, against float64.

With PYKITTENS_TARGET=sm_80 or sm_89 they are the configurations and the lowerings of that target.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

import pykittens as pk
from pykittens.kernels.gemm import gemm
from pykittens.kernels.gemm.choose import ALONE, candidates
from pykittens.kernels.gemm.config import Config, GemmShape
from pykittens.kernels.limits import limits_of
from pykittens.types.dtypes import DTYPES
from tests.gemm_problems import BLOCK_SCALES, Layout, Problem, results
from tests.gemm_random import drawn, fault_of
from tests.gpu.test_cases import on_gpu, on_host
from tests.kernels.test_epilogue import CONFIGS as PARTED
from tests.kernels.test_epilogue import PROBLEMS
from tests.kernels.test_gemm import CONFIGS, FP8, SCALED

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

GPU = (on_gpu, on_host)
SPLITS = Config(128, 256, stages=3, splits=2)


def limits():
    return limits_of(torch.empty(0, device="cuda"))


def needs(config, problem):
    """Skip where a configuration is for another target, or too large for this one."""
    gated, blocks = ("gate" in problem.extras, "row_blocks" in problem.extras)
    size = config.shared_bytes(DTYPES[problem.result].bytes, gated, blocks)
    if config.warpgroups != limits().warpgroups or size > limits().shared_bytes:
        pytest.skip("the configuration is for another target")


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def assert_product(found, a, b):
    """A sum in f32, rounded once: the bound of tests/tolerance.py."""
    exact, magnitude = a.double() @ b.double().mT, a.double().abs() @ b.double().abs().mT
    unit = 2.0**-8 if found.dtype == torch.bfloat16 else 2.0**-11
    bound = unit * exact.abs() + 2.0**-24 + 2 * (a.shape[-1] + 1) * 2.0**-24 * magnitude
    wrong = ~((found.double() - exact).abs() <= bound)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} elements are wrong"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_multiplies_at_any_size(name):
    sizes = [(1, 1, 1), (300, 290, 100), (257, 129, 65), (1111, 2222, 3333), (8, 16384, 64)]
    needs(CONFIGS[name], Problem(1, 1, 1))
    for m, n, k in [*sizes, (4096, 2048, 1024)]:
        assert fault_of(Problem(m, n, k, config=CONFIGS[name], out=True), GPU) == ""
    few = Problem(700, 900, 1100, config=CONFIGS[name])
    assert fault_of(few, GPU) == ""


@pytest.mark.parametrize("dtypes", [("bf16",) * 2, ("f16",) * 2, ("e4m3",) * 2, ("e4m3", "e5m2")])
@pytest.mark.parametrize("m", [1, 5, 16, 33, 64, 100, 128, 250, 513, 1000, 4096])
def test_what_is_picked_multiplies(m, dtypes):
    for n, k in ((100, 70), (1024, 1000), (4096, 512), (777, 4099)):
        for transpose_b in (True, False):
            problem = Problem(m, n, k, dtypes=dtypes, transpose_b=transpose_b)
            assert fault_of(problem, GPU) == ""


def test_every_candidate_of_a_shape_multiplies():
    for shape in (GemmShape(40, 300, 500), GemmShape(500, 600, 700)):
        for config in candidates(shape, limits()):
            problem = Problem(shape.m, shape.n, shape.k, config=config, extras={"bias": "f32"})
            assert fault_of(problem, GPU) == "", config


@pytest.mark.parametrize(
    "name", ["large", "narrow", "swap", "splits", "splits-cluster", "splits-swap", "exchange"]
)
def test_extents_of_nothing_and_of_one(name):
    needs(CONFIGS[name], Problem(1, 1, 1))
    for extents in ((130, 70, 0), (0, 70, 64), (70, 0, 64), (0, 0, 0), (1, 70, 1), (70, 1, 70)):
        assert fault_of(Problem(*extents, config=CONFIGS[name], out=True), GPU) == ""


@pytest.mark.parametrize("config", [None, *PARTED], ids=str)
@pytest.mark.parametrize("name", PROBLEMS)
def test_an_operand_does_what_its_name_says(name, config):
    problem = replace(PROBLEMS[name], config=PARTED.get(config))
    if config is not None:
        needs(PARTED[config], problem)
    assert fault_of(problem, GPU) == ""
    assert fault_of(replace(problem, m=700, n=500, k=1200), GPU) == ""


@pytest.mark.parametrize("name", SCALED)
def test_scales_of_blocks(name):
    for m, n, k in ((200, 410, 300), (700, 1000, 1280), (1, 1, 1), (513, 257, 2048)):
        problem = Problem(m, n, k, dtypes=FP8, extras=BLOCK_SCALES, config=SCALED[name])
        needs(SCALED[name], problem)
        assert fault_of(problem, GPU) == ""


@pytest.mark.parametrize("config", [c for c in PARTED if c != "swap"])
@pytest.mark.parametrize("function", ["", "shifted", "upper", "centred"])
def test_sums_and_functions_of_a_users(function, config):
    own = dict.fromkeys(("row", "column", "tile"), "bf16") if function == "shifted" else {}
    problem = Problem(500, 390, 270, extras=own, function=function, config=PARTED[config])
    needs(PARTED[config], problem)
    assert fault_of(replace(problem, row_sums=True, column_sums=True), GPU) == ""
    if function != "upper":
        batch = replace(problem, m=90, leads=((2, 1, 2), ()), row_sums=True)
        assert fault_of(batch, GPU) == ""


@pytest.mark.parametrize("layout", ["columns", "padded", "odd", "odd-columns", "step"])
def test_views_of_larger_arrays_whose_surroundings_stay(layout):
    way = Layout(
        columns="columns" in layout,
        lines="odd" if "odd" in layout else "padded" if layout == "padded" else "tight",
        step=2 if layout == "step" else 1,
    )
    for name in ("a", "b", "out"):
        for leads in (((), ()), ((3,), ()), ((2, 2), (2, 1))):
            problem = Problem(290, 200, 330, leads=leads, out=True, layouts={name: way})
            assert fault_of(problem, GPU) == ""
            assert fault_of(replace(problem, numbers={"beta": 0.5}), GPU) == ""


@pytest.mark.parametrize("number", range(200))
def test_a_random_product_is_right(number, request):
    number += request.config.getoption("--first")
    assert fault_of(drawn(number, 60, large=number % 10 == 0, numpy=False), GPU) == ""


def test_numbers_change_from_call_to_call():
    a, b, c = normal(300, 200), normal(200, 200), normal(300, 200)
    exact = a.double() @ b.double().T
    for alpha, beta in ((2.0, 0.5), (3.0, -1.0), (0.25, 2.0), (1.0, 0.0)):
        out = c.float()
        gemm(a, b, out, alpha=alpha, beta=beta)
        wanted = alpha * exact + beta * c.double()
        assert float((out.double() - wanted).norm() / wanted.norm()) < 1e-5


@pk.function
def scaled(x, at, factor):
    """x * factor."""
    return x * factor


def test_a_number_of_the_users_function_changes_from_call_to_call():
    a, b = normal(100, 200), normal(50, 200)
    exact = a.double() @ b.double().T
    for factor in (2.0, 3.0, -0.5):
        found = gemm(a, b, out_dtype=pk.f32, epilogue=scaled, operands=(factor,))
        wanted = factor * exact
        assert float((found.double() - wanted).norm() / wanted.norm()) < 1e-5


# -- bits, streams and graphs ----------------------------------------------------------------------


@pytest.mark.parametrize("config", [None, SPLITS, replace(SPLITS, swap=True, cols=64)], ids=str)
def test_repeated_launches_give_the_same_bits(config):
    if config is not None:
        needs(config, Problem(1, 1, 1))
    a, b, bias = normal(1000, 3000), normal(2000, 3000), normal(2000)
    first = gemm(a, b, bias=bias, activation="gelu", config=config)
    assert_product(gemm(a, b, config=config), a, b)
    for _ in range(20):
        found = gemm(a, b, bias=bias, activation="gelu", config=config)
        assert torch.equal(found, first)


def test_sums_give_the_same_bits():
    a, b = normal(1000, 1000), normal(1500, 1000)
    first = gemm(a, b, row_sums=True, column_sums=True)
    for _ in range(20):
        found = gemm(a, b, row_sums=True, column_sums=True)
        assert all(map(torch.equal, found, first))


def test_two_streams_share_no_flags():
    needs(SPLITS, Problem(1, 1, 1))
    pairs = [(normal(640, 4000 + 64 * i), normal(900, 4000 + 64 * i)) for i in range(2)]
    wanted = [gemm(a, b, config=SPLITS) for a, b in pairs]
    streams = [torch.cuda.Stream() for _ in pairs]
    torch.cuda.synchronize()
    found: list[list[torch.Tensor]] = [[], []]
    for _ in range(50):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[i].append(gemm(*pairs[i], config=SPLITS))
    torch.cuda.synchronize()
    for i in range(2):
        assert all(torch.equal(x, wanted[i]) for x in found[i])


def test_a_graph_with_splits_is_replayed():
    needs(SPLITS, Problem(1, 1, 1))
    a, b, c = normal(700, 3000), normal(900, 3000), normal(500, 900)
    gemm(gemm(a, b, config=SPLITS), c, config=SPLITS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = gemm(gemm(a, b, config=SPLITS), c, config=SPLITS)
        first = gemm(a, b, config=SPLITS)
    for _ in range(50):
        a.normal_()
        graph.replay()
        beside = gemm(a, b, config=SPLITS)
        torch.cuda.synchronize()
        assert torch.equal(first, beside)
    assert not out.isnan().any()
    assert_product(first, a, b)


def test_a_graph_runs_beside_launches_of_another_stream():
    needs(SPLITS, Problem(1, 1, 1))
    a, b = normal(640, 6000), normal(900, 6000)
    wanted = gemm(a, b, config=SPLITS)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        inside = gemm(a, b, config=SPLITS)
    torch.cuda.synchronize()
    found = []
    for _ in range(20):
        graph.replay()
        with torch.cuda.stream(side):
            found.append(gemm(a, b, config=SPLITS))
    torch.cuda.synchronize()
    assert torch.equal(inside, wanted)
    assert all(torch.equal(x, wanted) for x in found)


def test_tensors_that_come_again_share_nothing_with_another_stream_or_a_graph():
    needs(SPLITS, Problem(1, 1, 1))
    a, b, out = normal(640, 6000), normal(900, 6000), normal(640, 900)
    wanted = gemm(a, b, config=SPLITS)
    graph, side, third = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    for stream in (side, third):
        with torch.cuda.stream(stream):
            for _ in range(3):
                gemm(a, b, out, config=SPLITS)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side):
        gemm(a, b, out, config=SPLITS)
    out.fill_(torch.nan)
    torch.cuda.synchronize()
    for _ in range(30):
        graph.replay()
        for stream in (side, third):  # all three write the same
            with torch.cuda.stream(stream):
                gemm(a, b, out, config=SPLITS)
    torch.cuda.synchronize()
    assert torch.equal(out, wanted)


def test_the_memory_of_a_result_is_its_own():
    a, b = normal(100, 100), normal(100, 100)
    first, second = gemm(a, b), gemm(a, b)
    assert first.data_ptr() != second.data_ptr()
    problem = Problem(100, 100, 100, out=True)
    arrays = {n: x.view(on_gpu(x.memory)) for n, x in problem.stored().items()}
    assert results(problem, arrays)[0].data_ptr() == arrays["out"].data_ptr()


def test_a_configuration_of_another_target_or_that_is_too_large_is_refused():
    a, b = normal(64, 64), normal(64, 64)
    too_large = Config(256, 128, stages=16) if limits().warpgroups else replace(ALONE[0], stages=9)
    with pytest.raises(pk.KernelError, match="bytes of shared memory"):
        gemm(a, b, config=too_large)


# What a call that was made before costs the host at most, in calls of torch.mm.
COSTS = {"picked": (None, 1.3), "splits": (SPLITS, 1.5)}


def cost(call):
    """Seconds of the host, the least of twenty times a hundred calls."""
    best = math.inf
    for _ in range(20):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(100):
            call()
        best = min(best, (time.perf_counter() - begin) / 100)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTS)
def test_a_call_costs_the_host_little(name):
    config, most = COSTS[name]
    if config is not None:
        needs(config, Problem(1, 1, 1))
    a, b, out = normal(128, 128), normal(128, 128), normal(128, 128)
    library = cost(lambda: torch.mm(a, b.T, out=out))
    assert cost(lambda: gemm(a, b, out, config=config)) < most * library

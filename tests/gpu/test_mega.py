"""Programs on a GPU compute what their instructions do one after another, on any blocks and in any order of these."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mega import test_tags as tags
from tests.mega.programs import LENGTH, added, cells, random_rewrites, random_steps, sequential

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.gpu

INPUTS = 4


def random_program(seed, dynamic=False):
    """The kernel of a random program, its arguments, the cells that it writes, and what they are to be."""
    rng = np.random.default_rng(seed)
    blocks = int(rng.integers(1, 133))
    steps = random_steps(rng, INPUTS, int(rng.integers(1, 400)), blocks)
    x = np.full((INPUTS + len(steps), LENGTH), np.nan, np.float32)
    x[:INPUTS] = rng.integers(-4, 5, (INPUTS, LENGTH))
    with np.errstate(over="ignore"):
        wanted = sequential(steps, x)
    program = added(cells(blocks, dynamic), steps)
    y = torch.from_numpy(x).cuda()
    return program.kernel(), program.arguments(program.scheduled(x=y), x=y), y, wanted


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_equal_to_the_last_bit(seed):
    kernel, arguments, y, wanted = random_program(seed)
    for _ in range(50):
        y[INPUTS:] = torch.nan
        kernel(*arguments)
        np.testing.assert_array_equal(y.cpu().numpy(), wanted)


@pytest.mark.parametrize("seed", range(8))
def test_random_dynamic_programs_are_equal_to_the_last_bit(seed):
    kernel, arguments, y, wanted = random_program(seed, dynamic=True)
    tickets = arguments[4]
    for _ in range(50):
        y[INPUTS:] = torch.nan
        kernel(*arguments)
        np.testing.assert_array_equal(y.cpu().numpy(), wanted)
        assert tickets.tolist() == [0]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(8))
def test_programs_that_write_elements_again_are_equal_to_the_last_bit(seed, dynamic):
    rng = np.random.default_rng(seed)
    blocks, count = int(rng.integers(1, 133)), int(rng.integers(4, 60))
    steps = random_rewrites(rng, count, int(rng.integers(1, 400)), blocks)
    x = rng.integers(-4, 5, (count, LENGTH)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = sequential(steps, x)
    program, y = added(cells(blocks, dynamic), steps), torch.empty(x.shape, device="cuda")
    arguments = program.arguments(program.scheduled(x=y), x=y)
    for _ in range(50):
        y.copy_(torch.from_numpy(x))
        program.kernel()(*arguments)
        np.testing.assert_array_equal(y.cpu().numpy(), wanted)


def test_a_graph_of_a_dynamic_program_is_replayed():
    kernel, arguments, y, wanted = random_program(3, dynamic=True)
    kernel(*arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(*arguments)
    for _ in range(50):
        y[INPUTS:] = torch.nan
        graph.replay()
        np.testing.assert_array_equal(y.cpu().numpy(), wanted)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(8))
def test_programs_with_tags_give_what_their_instructions_do_in_order(seed, dynamic):
    """In one launch after another, of which each has the other tag."""
    program = tags.cells(blocks=20, dynamic=dynamic)
    tensors, wanted = tags.filled(program, seed, 150)
    tensors = {name: torch.from_numpy(x).cuda() for name, x in tensors.items()}
    arguments = program.arguments(program.scheduled(**tensors), **tensors)
    kernel = program.kernel()
    for _ in range(50):
        kernel(*arguments)
        np.testing.assert_array_equal(tags.without_tags(tensors["x"].cpu().numpy()), wanted)


@pytest.mark.parametrize("n", [1, 7, 200, 2048])
def test_a_reader_waits_for_the_elements_that_it_reads(n):
    x, y = torch.arange(n, device="cuda").float(), torch.zeros((14, n), device="cuda")
    for _ in range(20):
        tags.relay(x, torch.zeros((14, n), device="cuda"), y, n=n)
        assert torch.equal(y, x + torch.arange(14, device="cuda")[:, None])

"""A small Llama of generic instructions on a GPU: what float64 gives, and the same bits on any blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.mega.isa_models import all_kinds, llama

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.gpu

TAG = 15  # the bits of an element that hold the tag
PLACEMENTS, LAUNCHES = 10, 100


def on_gpu(x):
    """A tensor of a GPU with the elements of an array of NumPy, which may be of bf16."""
    if x.dtype.name != "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(x)).cuda()
    return torch.from_numpy(np.ascontiguousarray(x).view(np.int16)).view(torch.bfloat16).cuda()


def small(**words):
    sides = {"width": 512, "hidden": 1000, "heads": 2, "queries": 6, "vocabulary": 1000}
    return llama(array=on_gpu, **sides | {"capacity": 200, "blocks": 40, "parts": 2} | words)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("head", "chunk"), [(64, 1024), (64, 2048), (128, 1024), (128, 2048)])
def test_a_small_llama_gives_what_float64_does(head, chunk, dynamic):
    m, _ = small(head=head, chunk=chunk, dynamic=dynamic)
    tensors = m.tensors()
    launch = m.machine.launcher(tensors)
    for position, token in ((0, 0), (1, 999), (2, 5), (150, 7), (151, 8)):
        launch(position=position, token=token)
        m.check(tensors, position, token)


@pytest.mark.parametrize(("head", "chunk"), [(64, 1024), (128, 2048)])
def test_each_kind_gives_what_float64_does(head, chunk):
    m = all_kinds(array=on_gpu, head=head, chunk=chunk, blocks=100)
    tensors = m.tensors()
    m.machine.run(tensors, position=70, token=3)
    m.check(tensors, 70, 3)


@pytest.mark.parametrize("head", [64, 128])
def test_launches_on_any_blocks_have_the_same_bits(head):
    m, _ = small(head=head)
    tensors, program = m.tensors(), m.machine.program
    cache = tensors["cache"].clone()
    rng = np.random.default_rng(0)
    runs = [(int(rng.integers(200)), int(rng.integers(1000))) for _ in range(8)]
    wanted = {}
    for placement in range(PLACEMENTS):
        if placement:
            blocks = rng.integers(program.blocks, size=len(program.instructions))
            placed = zip(program.instructions, blocks.tolist(), strict=True)
            program.instructions[:] = [replace(step, block=block) for step, block in placed]
        launch = m.machine.launcher(tensors)
        for i in range(LAUNCHES):
            position, token = runs[i % len(runs)]
            tensors["cache"].copy_(cache)
            launch(position=position, token=token)
            bits = tensors["V"].view(torch.int32) & ~TAG
            found = bits, tensors["cache"].view(torch.int16), tensors["chosen"]
            known = wanted.setdefault((position, token), [x.clone() for x in found])
            assert all(map(torch.equal, found, known)), (placement, i)


def test_other_work_on_the_gpu_delays_it_and_changes_nothing():
    """Blocks that cannot start, as others have their multiprocessors, start later, all of them or none."""
    m, _ = small(blocks=132)
    tensors, other = m.tensors(), torch.cuda.Stream()
    launch = m.machine.launcher(tensors)
    launch(position=100, token=7)
    wanted = tensors["V"].view(torch.int32) & ~TAG
    a, b = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(300):
        with torch.cuda.stream(other):
            for _ in range(rng.integers(4)):
                torch.mm(a, b)
        launch(position=100, token=7)
    assert torch.equal(tensors["V"].view(torch.int32) & ~TAG, wanted)
    torch.cuda.synchronize()

"""What is proved and listed of every example and kernel of the library, each of which is recorded once."""

from __future__ import annotations

from typing import Any

import pytest

from pykittens.checker.proofs import balance
from pykittens.checker.proofs.launches import prove_aliasing, prove_launch, try_emit
from pykittens.checker.proofs.named_barriers import unjudged_barriers
from pykittens.checker.proofs.occupancy import Load, occupancy
from pykittens.checker.proofs.resources import shared_memory
from pykittens.emulate.inserted import inserted
from pykittens.ir.nodes import WaitProducts, WaitStores, walk
from pykittens.ir.stages import Acquire, GiveBack, Leave
from pykittens.kernels.attention import attention_blocks, gradient_blocks
from pykittens.kernels.grouped_gemm_k import grouped_k_tiles
from pykittens.runtime.arguments import check, known_values
from pykittens.targets.architectures import TARGETS
from pykittens.types.devices import H200
from tests.running import recorded
from tests.targets.compiling import CASES
from tests.tiers import sampled


@pytest.mark.parametrize("name", sampled(CASES, lambda name: CASES[name].kernel))
def test_nothing_is_found(name):
    case = CASES[name]
    kernel = recorded(case.kernel, *case.args, **case.constants)
    launch_fits(case, kernel)
    stages_balance(case, kernel)
    assert not unjudged_barriers(kernel)
    memory_is_mapped(case, kernel)
    inserted_nodes_are_listed(kernel)


def launch_fits(case: Any, kernel: Any) -> None:
    arguments = check(case.kernel.parameters, case.args, case.constants)
    source, found = try_emit(kernel, case.targets[-1])
    assert not found
    assert not prove_aliasing(kernel, arguments)
    held = occupancy(Load(source.threads, source.shared_bytes), H200)
    assert not prove_launch(kernel, known_values(kernel, arguments), held)


def stages_balance(case: Any, kernel: Any) -> None:
    proofs = balance.prove(kernel)
    assert not proofs.findings
    # Pipelines balance for all arguments, which is said. That the blocks of keys that a block of queries walks in two
    # loops are as many as the producer's in one follows from no rule of formulas, and so for queries in the backward
    # pass; if blocks share keys, the ring of results is not used.
    unknown = 0
    if case.kernel is attention_blocks:
        names = case.constants["form"].names
        unknown = 3 if "splits" in names else 2 * bool(names)
    elif case.kernel is gradient_blocks:
        unknown = 2
    elif case.kernel is grouped_k_tiles:  # what groups of rows have to do is known to the GPU only
        unknown = len(kernel.pipelines)
    balanced = sum(s.startswith("pipeline") for s in proofs.proved)
    assert balanced == len(kernel.pipelines) - unknown


def memory_is_mapped(case: Any, kernel: Any) -> None:
    """The map of shared memory ends where the memory does, and has no gaps."""
    for arch in case.targets:
        source, _ = try_emit(kernel, arch)
        if source is not None:
            parts = shared_memory(kernel, TARGETS[arch], source)
            assert max((p.end for p in parts), default=0) == source.shared_bytes
            alone = [p for p in parts if "in place of" not in p.what]
            for before, after in zip(alone, alone[1:], strict=False):
                assert before.end == after.offset


def inserted_nodes_are_listed(kernel: Any) -> None:
    kinds = Acquire | Leave | GiveBack | WaitProducts | WaitStores
    wanted = {id(n) for role in kernel.roles for n in walk(role.body) if isinstance(n, kinds)}
    assert {id(p.node) for p in inserted(kernel)} == wanted
    assert all(p.description and p.loc is not None for p in inserted(kernel))

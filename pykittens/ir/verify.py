"""Checks of a whole recorded kernel before it is lowered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pykittens.errors import LanguageError
from pykittens.ir.nodes import (
    Block,
    Call,
    Kernel,
    Node,
    While,
    blocks,
    calls,
    takes,
    tensors,
    walk,
)
from pykittens.ir.stages import Acquire, Pipeline
from pykittens.ir.structure import heads, inputs, results, yielded
from pykittens.ir.values import Scalar, Semaphore, SharedTile, Value


def verify(kernel: Kernel) -> None:
    """Raise a KernelError for a kernel whose roles, pipelines or semaphores do not fit together."""
    if kernel.launch is None:
        raise LanguageError(
            f"{kernel.name}: the kernel has no grid",
            loc=kernel.loc,
            help="start with pk.grid(...) or pk.persistent(...)",
        )
    _made_before_use(kernel.body, set())
    if kernel.has_roles:
        _only_scalars_outside_roles(kernel)
    for pipeline in kernel.pipelines:
        _both_ends(kernel, pipeline)
    for body in [role.body for role in kernel.roles] or [kernel.body]:
        _asks_of_its_own(body)
    _signalled(kernel)
    _not_ready(kernel)


def _not_ready(kernel: Kernel) -> None:
    """Raise if the kernel writes a tensor that is said to be complete when it starts."""
    for call in calls(kernel.body):
        for name in tensors(call, call.op.effects.writes):
            if name in kernel.ready:
                raise LanguageError(
                    f"{call.op.name}: `{name}` is written, and `ready` of pk.overlap says that it is complete",
                    loc=call.loc,
                )


def _made_before_use(block: Block, known: set[Value]) -> set[Value]:
    """Raise if a value is carried, merged or read outside the block that made it.

    `known` has the values that the block sees at its start; those that it makes are added.
    """
    for node in block.nodes:
        _check_known(inputs(node), known, node)
        inside = known
        for inner in blocks(node):
            at_end = _made_before_use(inner, {*inside, *heads(node)})
            _check_known(yielded(node, inner), at_end, node)
            if isinstance(node, While):
                inside = at_end  # the body sees what the test has computed
        known.update(results(node))
    return known


def _check_known(values: Iterable[Any], known: set[Value], node: Node) -> None:
    for v in values:
        if not isinstance(v, Value) or isinstance(v, SharedTile) or v.block is None or v in known:
            continue
        raise LanguageError(
            f"`{v.name or 'a value'}` is carried out of {v.block.owner} that made it",
            operands=v.origin,
            loc=node.loc,
            help="bind the name before the loop to carry it out",
        )


def _only_scalars_outside_roles(kernel: Kernel) -> None:
    for node in walk(kernel.outside):
        if isinstance(node, Acquire) or (isinstance(node, Call) and _belongs_in_a_role(node)):
            what = node.op.shown if isinstance(node, Call) else "a stage"
            raise LanguageError(
                f"{what}: stands outside the roles of a kernel with roles",
                loc=node.loc,
                help="only scalars may stand outside roles; move it into the role that needs it",
            )


def _belongs_in_a_role(call: Call) -> bool:
    """Whether an operation does more than compute a scalar from values or tensors, or name shared memory."""
    effects = call.op.effects
    return (
        not replace(effects, reads=()).pure
        or any(isinstance(call.args[name], SharedTile) for name in effects.reads)
        or not all(isinstance(r, Scalar | SharedTile | Semaphore) for r in call.results)
    )


def _both_ends(kernel: Kernel, pipeline: Pipeline) -> None:
    """Raise if a pipeline is only filled or only drained."""
    taken = [n for n in walk(kernel.body) if isinstance(n, Acquire) and n.pipeline is pipeline]
    sides = {n.side for n in taken}
    if len(sides) == 1:
        done, missing, other = (
            ("filled", "drained", "drain") if "fill" in sides else ("drained", "filled", "fill")
        )
        raise LanguageError(
            f"the pipeline `{pipeline.name}` is {done} and never {missing}",
            loc=taken[0].loc,
            operands={"made at": pipeline.loc},
            help=f"another role takes its stages with `{pipeline.name}.{other}()`",
        )


def _asks_of_its_own(body: Block) -> None:
    """Raise if a role asks whether a ring is full that it does not fill."""
    for call in calls(body):
        ring = call.args.get("ring")
        if isinstance(ring, Pipeline) and not takes(body, ring, "fill"):
            raise LanguageError(
                f"is_full: the role does not fill `{ring.name}`",
                loc=call.loc,
                help="let the role ask that fills the ring",
            )


def _signalled(kernel: Kernel) -> None:
    """Raise if a kernel waits for a semaphore at which no operation arrives."""
    signalled: set[Value] = set()
    awaited: list[tuple[Value, Call]] = []
    for call in calls(kernel.body):
        signalled.update(_semaphores(call, call.op.effects.signals))
        awaited += [(s, call) for s in _semaphores(call, call.op.effects.waits)]
    for semaphore, call in awaited:
        if semaphore not in signalled:
            raise LanguageError(
                f"the kernel waits for the semaphore `{semaphore.name or '_'}`, and nothing arrives at it",
                operands={"made at": semaphore.loc},
                loc=call.loc,
                help="`semaphore.arrive()`, or `semaphore.expect(bytes)` if copies bring bytes",
            )


def _semaphores(node: Call, names: Iterable[str]) -> Iterator[Value]:
    """The semaphores among these operands; one of an array of semaphores stands for the array."""
    for name in names:
        value = node.args[name]
        if isinstance(value, Semaphore):
            yield value.source.args["memory"] if isinstance(value.source, Call) else value

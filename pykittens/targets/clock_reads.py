"""Clock reads of the roles of a program: where a group waits, signals, copies, or takes and returns a stage.

In other programs these functions write nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pykittens.ir.nodes import Call, Node, WaitProducts, WaitStores
from pykittens.ir.op import Engine
from pykittens.ir.stages import Acquire, Leave, Pipeline
from pykittens.ir.values import Global, TileRef
from pykittens.targets.index import Index
from pykittens.targets.source import ClockRead, Part, Seen
from pykittens.types.tiles import TURNS

if TYPE_CHECKING:
    from pykittens.targets.cuda.emitter import CudaEmitter

# What the work of a role is for; that of other roles is to compute.
WORK: dict[str, Part] = {"producer": "fetch", "fetchers": "fetch", "storer": "store"}
COPIES: dict[Engine, Part] = {
    Engine.COPY_IN: "fetch",
    Engine.COPY_OUT: "store",
    Engine.SEND: "store",
}


def begin_clocks(e: CudaEmitter, group: Index) -> None:
    """Write the start of a role; group: the number of the group among those of the block."""
    groups = sum(r.groups for r in e.kernel.roles)
    e.line("Clocks clocks;")
    given = f"clock_records, most_records, most_blocks, {group}, {groups}, {e.first_thread}"
    e.line(f"clocks.begin({given});")
    _read(e, _work(e))


def end_clocks(e: CudaEmitter) -> None:
    """Write the end of a role."""
    e.line(f"clocks.finish({_place(e, ClockRead('end'))}, most_records);")


@contextmanager
def timed(e: CudaEmitter, node: Node) -> Iterator[None]:
    """Write clock reads before and after the text of a node that crosses roles."""
    if isinstance(node, Leave):
        _read(e, _work(e, "filled", node.acquire.pipeline))
    found = _crossing(e, node)
    if found is None:
        yield
        return
    before = len(e.lines)
    yield
    written = (i for i in range(before, len(e.lines)) if not _is_note(e.lines[i]))
    if (at := next(written, None)) is None:
        return
    e.lines.insert(at, _text(e, found))
    # The read after the node before this one says that work begins, and this one that it ends at once.
    if before and e.lines[before - 1] == _text(e, _work(e)):
        del e.lines[before - 1]
    if isinstance(node, Acquire):
        _read(e, _work(e, "taken" if node.side == "fill" else "drained", node.pipeline))
    else:
        _read(e, _work(e))


@contextmanager
def instruction(e: CudaEmitter, kind: str) -> Iterator[None]:
    """Write clock reads at the start and the end of an instruction of a program; first its ticket, if it has one."""
    if e.place:
        e.line(f"clocks.note({_place(e, ClockRead(_work(e).part, seen='ticket'))}, {e.place});")
    _read(e, ClockRead(_work(e).part, seen="begins", subject=kind))
    yield
    _read(e, ClockRead(_work(e).part, seen="ends", subject=kind))


def seen(e: CudaEmitter, what: Seen, pipeline: Pipeline) -> str:
    """The text of a clock read in a line in which something happens to a stage; empty in other programs."""
    return f"{_text(e, _work(e, what, pipeline)).strip()} " if e.clocks else ""


def _work(e: CudaEmitter, what: Seen = "", pipeline: Pipeline | None = None) -> ClockRead:
    """A read after which the group works."""
    read = ClockRead(WORK.get(e.role.shown, "compute"), seen=what)
    return read if pipeline is None else _of_ring(e, read, pipeline)


def _of_ring(e: CudaEmitter, read: ClockRead, pipeline: Pipeline) -> ClockRead:
    """A read about a ring, by the name of its pipeline, or that of the program if several have the name."""
    alike = sum(p.name == pipeline.name for p in e.kernel.pipelines)
    name = pipeline.name if alike == 1 else e.rings[pipeline]
    return replace(read, subject=name, stages=pipeline.stages)


def _crossing(e: CudaEmitter, node: Node) -> ClockRead | None:
    """The read before a node at which groups wait for others, signal others or move memory."""
    match node:
        case Acquire():
            state = "free" if node.side == "fill" else "full"
            read = ClockRead("wait", f"until {{stage}} is {state}", node.loc)
            return _of_ring(e, read, node.pipeline)
        case WaitProducts():
            return ClockRead("wait", "until its products are done", node.loc)
        case WaitStores():
            return _stores(node, node.read)
        case Call():
            return _crossing_call(e, node)
    return None


def _crossing_call(e: CudaEmitter, call: Call) -> ClockRead | None:
    effects = call.op.effects
    if effects.finishes is Engine.PRODUCT:
        return ClockRead("wait", "until its products are done", call.loc)
    if effects.finishes is Engine.COPY_OUT:
        return _stores(call, call.args["read"])
    if effects.waits:
        return ClockRead("wait", _words(call.args[effects.waits[0]])[0], call.loc)
    if effects.engine is None and effects.signals:
        return ClockRead("signal", _words(call.args[effects.signals[0]])[1], call.loc)
    part = COPIES.get(effects.engine) if effects.engine is not None else None
    if part is None or part == _work(e).part:
        return None
    return ClockRead(part, f"starts {call.op.shown}", call.loc)


def _stores(node: Call | WaitStores, read: bool) -> ClockRead:
    return ClockRead("store", f"until its stores have {'read' if read else 'written'}", node.loc)


def _words(what: Any) -> tuple[str, str]:
    """What a group does that waits for a turn, a semaphore or a flag, and one that signals it."""
    if isinstance(what, TileRef | Global):
        name = what.first.tensor.name
        return f"until {name} is set", f"signals {name}"
    if isinstance(what.type, TURNS):
        return "until it is its turn", "passes the turn"
    one_of = what.source.args["memory"] if isinstance(what.source, Call) else what
    name = one_of.name or "semaphore"
    return f"until a phase of {name} is complete", f"signals {name}"


def _is_note(line: str) -> bool:
    return line.lstrip().startswith(("#line", "//"))


def _read(e: CudaEmitter, read: ClockRead) -> None:
    e.lines.append(_text(e, read))


def _text(e: CudaEmitter, read: ClockRead) -> str:
    """The line of a read, indented."""
    return f"{'    ' * e.depth}clocks.read({_place(e, read)});"


def _place(e: CudaEmitter, read: ClockRead) -> int:
    """The number of a place; reads that say the same share one."""
    if read not in e.reads:
        e.reads.append(read)
    return e.reads.index(read)

"""A small run reported to a recorder: a producer fills the stages of a ring, and consumers multiply from them."""

from __future__ import annotations

from pykittens.analysis.timeline.spans import Activity, Span, Timeline, Track, TrackKind
from pykittens.analysis.timeline.timekeeper import StageUse, Timekeeper
from pykittens.errors import Loc

# Lines that do not change with this file.
LOAD, MULTIPLY = Loc(__file__, 1, "ring"), Loc(__file__, 3, "ring")
COPY, PRODUCT = 60, 40  # cycles


def ring(steps: int = 6, stages: int = 2, consumers: int = 2, block: str = "block 0") -> Timekeeper:
    """The run of one block, with one step per stage of the ring; the consumers are reported one after the other."""
    time = Timekeeper("ring")
    _block(time, block, steps, stages, consumers)
    return time


def two_blocks() -> Timeline:
    """Two blocks side by side."""
    time = Timekeeper("ring")
    for block in ("block 0", "block 1"):
        _block(time, block, 3, 2, 1)
    return time.timeline()


def _block(time: Timekeeper, block: str, steps: int, stages: int, consumers: int) -> None:
    producer = time.track(block, "producer", TrackKind.GROUP)
    groups = [time.track(block, f"consumers {i}", TrackKind.GROUP) for i in range(consumers)]
    copies = time.track(block, "copies in", TrackKind.ENGINE)
    products = time.track(block, "tensor cores", TrackKind.ENGINE)
    slots = [time.track(block, f"ring[{i}]", TrackKind.STAGE) for i in range(stages)]
    turns: list[StageUse] = []
    for first in range(0, steps, stages):
        lap = range(first, min(first + stages, steps))
        for step in lap:
            before = turns[step - stages].returned if step >= stages else []
            taken = time.wait(producer, before, "waits for a free stage", LOAD)
            time.work(producer, "issues", 1, LOAD)
            turn = time.use(slots[step % stages], f"turn {step}")
            turn.taken.append(taken)
            after = [time.now(producer)]
            turn.landed.append(
                time.start(copies, "load_async", COPY, after, Activity.COPY, LOAD, {"bytes": 64})
            )
            turns.append(turn)
        for group in groups:
            for step in lap:
                _consume(time, group, products, turns[step])


def _consume(time: Timekeeper, group: Track, products: Track, turn: StageUse) -> None:
    turn.drained.append(time.wait(group, turn.landed, "waits for a full stage", MULTIPLY))
    after = [time.now(group)]
    product = time.start(products, "mma_ABt", PRODUCT, after, Activity.PRODUCT, MULTIPLY)
    time.wait(group, [product], "waits for the product", MULTIPLY)
    turn.returned.append(time.work(group, "adds", 5, MULTIPLY))


def of(timeline: Timeline, track: str, activity: Activity | None = None) -> list[Span]:
    """The spans of the tracks of a name, in order of time."""
    return [
        s
        for s in timeline.spans
        if s.track.name == track and (activity is None or s.activity is activity)
    ]


def times(spans: list[Span]) -> list[tuple[int, int]]:
    """When each starts and ends."""
    return [(s.start, s.end) for s in spans]

"""Explains a deadlock: which group waits for what, who has signalled it, and what each group has done before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykittens.emulate.barriers import Barrier
from pykittens.emulate.group import Group, name_in_launch
from pykittens.emulate.memory import GlobalTile
from pykittens.emulate.shared import Signalled, Turn
from pykittens.emulate.waiting import signal_key
from pykittens.errors import DeadlockError, Loc

# Groups, signals or counts that are listed; the others are counted.
MOST = 4

Said = tuple[str, str, Loc | None]


def deadlock(
    groups: Sequence[Group], waiting: Sequence[Group], to_start: int, resident: int
) -> DeadlockError:
    """The error for groups that have started, of which those of `waiting` wait and the others have ended.

    to_start: the number of clusters that start when one of the `resident` that run has ended.
    """
    several = len({g.block for g in groups}) > 1
    names = {g: name_in_launch(g) if several else g.name for g in groups}
    waits = _waits(waiting, names)
    over = list(_progress([g for g in groups if g not in waiting], "ended", names))
    operands = {name: what for name, what, _ in waits}
    if over:
        operands["ended"] = "; ".join(
            f"{who} {what.removeprefix('ended ')}" for who, what, _ in over
        )
    fault = DeadlockError(
        "deadlock: every role that has not ended waits",
        operands=operands,
        loc=waits[0][2],
        help=f"{to_start} more start only when one of the {resident} that run has ended: blocks that wait for a flag "
        "must all run at once"
        if to_start
        else None,
    )
    fault.waits = tuple(waits)
    stopped = _progress(waiting, "stopped", names)
    fault.history = (*_signals(groups, waiting, names), *over, *stopped)
    return fault


def _waits(waiting: Sequence[Group], names: dict[Group, str]) -> list[Said]:
    """The first waits at each line."""
    at: dict[str, list[Group]] = {}
    for group in waiting:
        assert group.waits_for is not None
        at.setdefault(str(group.waits_for.loc), []).append(group)
    shown = {g for alike in at.values() for g in alike[:MOST]}
    return [
        (names[g], g.waits_for.describe(), g.waits_for.loc)
        for g in waiting
        if g in shown and g.waits_for is not None
    ]


def _signals(
    groups: Sequence[Group], waiting: Sequence[Group], names: dict[Group, str]
) -> Iterator[Said]:
    """For the barriers, flags and turns that groups wait for: who has signalled them, how often, and the last line."""
    several = len({g.block for g in groups}) > 1
    awaited: dict[object, str] = {}
    for group in waiting:
        for what in group.waits_for.on if group.waits_for is not None else ():
            of_block = several and not isinstance(what, GlobalTile)
            name = f"{_name(what)} in {group.block.name}" if of_block else _name(what)
            awaited.setdefault(signal_key(what), name)
    if never := [n for key, n in awaited.items() if not any(key in g.signals for g in groups)]:
        yield "no group", f"has signalled {_listed(never, ', ')}", None
    signalled = [
        (group, name, group.signals[key])
        for key, name in awaited.items()
        for group in groups
        if key in group.signals
    ]
    for group, name, signal in signalled[:MOST]:
        times = "once" if signal.count == 1 else f"{signal.count} times"
        yield names[group], f"has signalled {name} {times}, the last time here", signal.loc


def _progress(groups: Sequence[Group], word: str, names: dict[Group, str]) -> Iterator[Said]:
    """What groups have done before they ended or stopped; those that have done the same are named together."""
    alike: dict[str, list[str]] = {}
    for group in groups:
        alike.setdefault(f"{word} {_done(group)}", []).append(names[group])
    for what, who in alike.items():
        yield _listed(who, "; " if any("," in name for name in who) else ", "), what, None


def _listed(names: Sequence[str], separator: str) -> str:
    """The first names, and the number of the others."""
    rest = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{separator.join(names[:MOST])}{rest}"


def _done(group: Group) -> str:
    """How often a group has filled, drained and signalled."""
    counts = [
        (count, side, f"of `{pipeline.name}`") for (pipeline, side), count in group.taken.items()
    ]
    # Fills and drains count the signals of stages.
    rings = [ring for block in group.block.cluster for ring in block.rings.values()]
    stages = {b for ring in rings for b in (*ring.full, *ring.empty)}
    counts += [
        (s.count, "signal", f"of {_name(s.what)}")
        for s in group.signals.values()
        if s.what not in stages
    ]
    shown = [f"{n} {word}{'s' * (n != 1)} {of}" for n, word, of in counts if n]
    return f"after {_listed(shown, ', ')}" if shown else "without a fill, drain or signal"


def _name(what: Signalled) -> str:
    if isinstance(what, Barrier):
        return what.name
    return "the turn" if isinstance(what, Turn) else str(what)

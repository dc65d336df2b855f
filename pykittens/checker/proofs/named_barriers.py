"""The hardware barriers of a block, as statements of CUDA C++ in a kernel use them beside the compiler.

A block has 16. Barrier 0 is that of __syncthreads(); the compiler gives each group of several warps one of its own.
Source: PTX ISA, "bar, barrier"; CUDA C++ Programming Guide, "Synchronization Functions".
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pykittens.checker.faults import first_of_each
from pykittens.checker.proofs.counts import Visit, visits
from pykittens.emulate.finding import Finding, Kind, Scope, Step
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, group_name
from pykittens.ir.values import Scalar, Value
from pykittens.targets.cuda.warp_assignment import Team, teams, thread_count
from pykittens.targets.target import Target

MOST_BARRIERS = 16


@dataclass(frozen=True)
class Meeting:
    """A use of a barrier in a text: its number and the threads it counts, None where they are not known.

    whole: no threads are said, so it counts all of the block.
    """

    word: str
    id: int | None
    threads: int | None
    whole: bool = False


@dataclass(frozen=True)
class _Use:
    meeting: Meeting
    team: Team
    group: int
    who: str
    loc: Loc | None


def prove_named_barriers(kernel: Kernel, target: Target) -> list[Finding]:
    """The uses of hardware barriers that hang, or that take a barrier somebody else has."""
    placed = {t.role.body: t for t in teams(kernel, target)}
    uses = [
        _Use(meeting, placed[v.role.body], v.group, v.who, getattr(v.node, "loc", None))
        for v in visits(kernel)
        for meeting in _of_node(v)
    ]
    found = [
        *_out_of_range(uses),
        *_whole_blocks(kernel, thread_count(kernel, target), uses),
        *_taken(kernel, list(placed.values()), uses),
        *_counted(uses),
    ]
    return first_of_each(found)


# -- what a text says ------------------------------------------------------------------------------


def _of_node(visit: Visit) -> list[Meeting]:
    """The barriers in the text of a statement or an expression of CUDA C++, as a group runs it."""
    call = visit.node
    if not isinstance(call, Call) or not isinstance(call.args.get("text"), str):
        return []
    operands = [_spelled(visit, x) for x in call.args.get("operands", ())]
    try:
        text = call.args["text"].format(*operands)
    except (IndexError, KeyError, ValueError):
        return []
    return meetings(text)


def _spelled(visit: Visit, operand: Any) -> str:
    """A number where the group knows one; a name that is none elsewhere."""
    if isinstance(operand, Value) and not isinstance(operand, Scalar):
        return "unknown"
    if isinstance(operand, float) or (isinstance(operand, Scalar) and operand.dtype.is_float):
        return "unknown"
    number = visit.formulas.formula(operand).constant
    return "unknown" if number is None else str(number)


_ASM = re.compile(r"\basm\b(?:\s+volatile|\s+__volatile__)?\s*\(")
_INSTRUCTION = re.compile(r"\b(?:bar|barrier)(?:\.cta)?\.(?:sync|arrive|red)[.\w]*\s*([^;{}]*)")
_CALLS: tuple[tuple[re.Pattern[str], int | None, int | None], ...] = (
    # A name, and the places of the barrier's number and of the count among its arguments.
    (re.compile(r"\b__syncthreads(?:_count|_and|_or)?\s*\("), None, None),
    (re.compile(r"\b__barrier_sync\s*\("), 0, None),
    (re.compile(r"\b__barrier_sync_count\s*\("), 0, 1),
    (re.compile(r"\bgroup_sync\s*\("), 0, 1),
    (re.compile(r"\bNamedBarrier::(?:sync|arrive|arrive_and_wait)\s*\("), 1, 0),
    (re.compile(r"\bnamed_barrier_(?:sync|arrive)\s*\("), 1, 0),
)
_OPERAND = re.compile(r"\"[=+&]*[a-z]\"\s*(?=\()")
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")


def meetings(text: str) -> list[Meeting]:
    """The uses of hardware barriers in a text of CUDA C++."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    found = [m for start in _ASM.finditer(text) for m in _of_asm(_inside(text, start.end()))]
    for pattern, id_at, threads_at in _CALLS:
        for match in pattern.finditer(text):
            word = match[0].rstrip("( ")
            args = [_number(a) for a in _split(_inside(text, match.end()), ",")]
            id_ = 0 if id_at is None else args[id_at] if id_at < len(args) else None
            if threads_at is None:
                found.append(Meeting(word, id_, None, whole=True))
            else:
                found.append(
                    Meeting(word, id_, args[threads_at] if threads_at < len(args) else None)
                )
    return found


def _of_asm(inside: str) -> Iterator[Meeting]:
    """The barriers of one asm statement, its operands put in."""
    parts = _split(inside, ":")
    template = "".join(m[1] for m in _STRING.finditer(parts[0])).replace("\\n", " ")
    given = [_inside(p, m.end() + 1) for p in parts[1:3] for m in _OPERAND.finditer(p)]
    for match in _INSTRUCTION.finditer(template):
        word = match[0].split()[0]
        named = [a for a in _split(match[1], ",") if a.strip()]
        args = [_operand(a.strip(), given) for a in named]
        if ".red" in word:  # the result comes first, and a predicate last
            args = args[1:-1]
        threads = args[1] if len(args) > 1 else None
        yield Meeting(word, args[0] if args else None, threads, whole=len(args) == 1)


def _operand(text: str, given: Sequence[str]) -> int | None:
    if (place := re.fullmatch(r"%(\d+)", text)) is None:
        return _number(text)
    at = int(place[1])
    return _number(given[at]) if at < len(given) else None


def _inside(text: str, start: int) -> str:
    """The text from behind an open parenthesis to before the one that closes it."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    return text[start:]


def _split(text: str, at: str) -> list[str]:
    """The parts between separators that stand in no parentheses and no string."""
    parts, depth, quoted = [""], 0, False
    for i, letter in enumerate(text):
        if letter == '"' and text[i - 1 : i] != "\\":
            quoted = not quoted
        depth += 0 if quoted else {"(": 1, ")": -1}.get(letter, 0)
        if letter == at and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def _number(text: str) -> int | None:
    """The number of an expression of literals with + - *."""

    def value(node: ast.expr) -> int | None:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                left, right = value(node.left), value(node.right)
                if left is None or right is None:
                    return None
                return _ARITHMETIC[type(node.op)](left, right)
        return None

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return None


# -- what is wrong with it -------------------------------------------------------------------------


def _finding(message: str, uses: Sequence[_Use], missing: str, help: str) -> Finding:
    steps = {(u.who, u.loc): Step(u.who, f"meets at {_told(u.meeting)}", u.loc) for u in uses}
    return Finding(
        Kind.NAMED_BARRIER,
        message,
        steps=tuple(steps.values()),
        missing=missing,
        help=help,
        scope=Scope.ALWAYS,
    )


def _told(meeting: Meeting) -> str:
    at = "a barrier" if meeting.id is None else f"barrier {meeting.id}"
    return at if meeting.threads is None else f"{at} for {meeting.threads} threads"


def _out_of_range(uses: Sequence[_Use]) -> Iterator[Finding]:
    for use in uses:
        id_, threads = use.meeting.id, use.meeting.threads
        if id_ is not None and not 0 <= id_ < MOST_BARRIERS:
            yield _finding(
                f"{use.meeting.word} names barrier {id_}, and a block has barriers 0 to {MOST_BARRIERS - 1}",
                [use],
                "a barrier that the hardware has",
                "take a smaller number; pk.sync() takes one that is free",
            )
        if threads is not None and (threads <= 0 or threads % 32):
            yield _finding(
                f"{use.meeting.word} counts {threads} threads, and barriers count whole warps",
                [use],
                "a multiple of 32 threads",
                "a warp arrives with its 32 threads, whichever of them are there",
            )


def _whole_blocks(kernel: Kernel, threads: int, uses: Sequence[_Use]) -> Iterator[Finding]:
    """A barrier of all threads of the block in a role: the others never come."""
    alike: dict[tuple[Meeting, Loc | None, Team], list[_Use]] = {}
    for use in uses:
        if use.meeting.whole:
            alike.setdefault((use.meeting, use.loc, use.team), []).append(use)
    for (meeting, _, team), ours in alike.items():
        come = 32 * team.role.warps * len({u.group for u in ours})
        if come < threads:
            yield _finding(
                f"{meeting.word} waits for all {threads} threads of the block, and {come} come there",
                ours,
                "the threads of the other groups",
                "pk.sync() is for the warps of the group; pk.semaphore(...) meets other roles",
            )


def _taken(kernel: Kernel, placed: Sequence[Team], uses: Sequence[_Use]) -> Iterator[Finding]:
    """A barrier that the compiler gives to another group."""
    owners = {
        barrier: (team, group)
        for team in placed
        for group in range(team.role.groups)
        if (barrier := team.group_barrier(group)) is not None
    }
    free = sorted(set(range(1, MOST_BARRIERS)) - set(owners))
    for use in uses:
        owner = owners.get(-1 if use.meeting.id is None else use.meeting.id)
        if owner is None or owner == (use.team, use.group):
            continue
        team, group = owner
        whose = group_name(kernel, team.role, group)
        yield _finding(
            f"{use.who} takes barrier {use.meeting.id}, at which the warps of {whose} meet",
            [use],
            f"a barrier of its own for {use.who}",
            f"barriers {', '.join(map(str, free))} are free" if free else "none is free",
        )


def _counted(uses: Sequence[_Use]) -> Iterator[Finding]:
    """A barrier that counts other threads than those of the groups that use it."""
    by_id: dict[int, list[_Use]] = {}
    for use in uses:
        if use.meeting.id is not None and use.meeting.threads is not None:
            by_id.setdefault(use.meeting.id, []).append(use)
    for id_, ours in by_id.items():
        groups = {(u.team.role, u.group): u.team.role.warps * 32 for u in ours}
        come = sum(groups.values())
        for use in ours:
            counts, own = use.meeting.threads, use.team.role.warps * 32
            assert counts is not None
            if counts in (come, 0) or counts % 32:
                continue
            if counts == own and len(groups) > 1:
                message = f"barrier {id_} is used by {len(groups)} groups, and counts the threads of one, {counts}"
                help = "each group needs a barrier of its own: add the number of the group to that of the barrier"
            else:
                message = f"barrier {id_} counts {counts} threads, and {come} come there"
                help = "it counts the threads of all groups that meet there, 32 a warp"
            missing = f"the {counts - come} threads that never come" if counts > come else ""
            yield _finding(message, ours, missing or "an order of those who come too many", help)

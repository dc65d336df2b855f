"""The kernel that runs a program: in each role a loop over the queue of the block, with a branch for each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pykittens as pk
from pykittens.errors import LanguageError
from pykittens.ir.build import current
from pykittens.ir.nodes import Block, Call, If, Node, calls, walk, within
from pykittens.ir.op import Engine
from pykittens.ir.stages import Acquire
from pykittens.ir.structure import uses
from pykittens.lang.homes import RolePlace
from pykittens.lang.loops import for_loop
from pykittens.lang.merging import Merging
from pykittens.mega.flows import accessed, read_ends

if TYPE_CHECKING:
    from pykittens.mega.program import Kind

# The words of an instruction: its kind from 1 on (0: none), its fields, and for each role the first of its waits, their
# number, and the counter that it signals (-1: none).
OF_A_ROLE = 3


def word_of_role(kinds: Sequence[Kind], role: int) -> int:
    """The first word of a role, by its number; that past the last role is the number of words in use."""
    return 1 + max(len(kind.fields) for kind in kinds) + OF_A_ROLE * role


def padded(words: int) -> int:
    """The int32 words of a row with so many in use: whole multiples of 16 bytes.

    So rows of all schedules, and those of no instructions, are of one type, and one recording serves them.
    """
    return -(-words // 4) * 4


@dataclass
class Interpreter:
    """The kernel while it is recorded.

    code: int32 (queues, instructions, words): a queue for each block, or one from which blocks take by tickets. waits:
    int32 (waits, 2), each a counter and its value after all that signal it. counters: int32 (2, counters); launches use
    both rows in turn, and set that of the next one to 0. parities: int32 (blocks, groups), the row of this launch for
    each group of all roles. tickets: int32 (1,), or None if each block has a queue. operands: tensors by name.
    rewrites: elements are written again, so roles that write wait as well, and those that read signal. apart: the
    instructions of a launch need nothing of one another, so that there are no counters, waits and parities; a launch
    loads weights before the one in front of it has ended.
    """

    kinds: Sequence[Kind]
    code: Any
    waits: Any
    counters: Any
    parities: Any
    tickets: Any
    operands: Mapping[str, Any]
    rewrites: bool = False
    apart: bool = False
    merging: Merging = field(default_factory=Merging)
    # The fields and numbers of each kind, in the bodies of the merging.
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    tag_of: dict[str, Any] = field(default_factory=dict)  # the tag in these bodies

    def record(self) -> None:
        """Record all roles."""
        self.kernel = current("pykittens.mega").kernel
        queues, length, _ = self.code.shape
        self.queue: Any = 0
        if self.tickets is None:
            (self.block,) = pk.grid(queues)
            self.queue, self.blocks = self.block, queues
        else:
            most = self.parities.shape[0]
            self.tasks = pk.persistent((length,), blocks=most, tickets=self.tickets)
            self.block, self.blocks = self.tasks.block, self.tasks.blocks
        for kind in self.kinds:
            self._survey(kind)
        self._check_rings()
        # Tensors that instructions write: who reads them waits, unless their elements have tags.
        all_calls = [call for body in self.merging.bodies.values() for call in calls(body)]
        with_tags = [call for call in all_calls if call.op.effects.tagged]
        self.tagged = {*accessed(with_tags, reads=True, writes=True)}
        self._check_tags()
        self.written = {*accessed(all_calls, writes=True)} - self.tagged
        both = self.written | self.tagged
        self.read_ends = read_ends(self.merging.bodies, both)
        for kind in self.kinds:
            outside = self.merging.outside[kind.name].nodes
            if found := both.intersection(accessed(outside, reads=True)):
                raise LanguageError(
                    f"{kind.name}: reads `{min(found).partition('.')[2]}`, which instructions write, outside of its "
                    "roles",
                    help="read it in the roles that need it, which wait for those that write it",
                )
        if self.apart:
            pk.overlap(ready=(self.code, *self._constants(both)))
        group = 0
        for number, (place, of) in enumerate(self.merging.roles.items()):
            with of.context as index:
                one = 0 if of.context.groups == 1 else index
                mine, self.parity = group + one, 0
                if not self.apart:
                    self.parity = pk.load(self.parities[self.block, mine])
                    if group == 0:
                        self._clear(one)
                if group == 0:
                    self._check_numbers()
                self._role(place, index, word_of_role(self.kinds, number))
                if not self.apart:
                    self._turn_parity(mine, of.context.warps)
            group += of.context.groups

    def _constants(self, both: Set[str]) -> list[Any]:
        """The tensors that no instruction writes, and that are no numbers: a launch before may set these."""
        numbers = {name for kind in self.kinds for name in kind.numbers}
        return [
            tensor
            for name, tensor in self.operands.items()
            if tensor.name not in both and name not in numbers
        ]

    def _turn_parity(self, group: Any, warps: int) -> None:
        """At the end of a role, let its group of the next launch use the other row of counters."""
        if warps > 1:
            pk.sync()  # all warps have loaded it
        # Blocks that are not there this time may be there the next.
        all_rows = self.parities.shape[0]
        rows = [self.block] if self.tickets is None else self._share(all_rows)
        for row in rows:
            pk.store(self.parities[row, group], 1 - self.parity)

    def _survey(self, kind: Kind) -> None:
        words = list[Any]()

        def run() -> None:
            if not words:
                words.extend(self._words(0, 0))
                self.fields[kind.name] = kind.values(self.operands, words)
                self.tag_of[kind.name] = words[0]
            kind.record(self.operands, self.fields[kind.name], words[0])

        self.merging.survey(kind.name, run)

    def _words(self, turn: Any, first: int) -> list[Any]:
        """The words of an instruction that a role uses: its kind, its fields, and those of the role from `first` on.

        They are loaded at once, before the branch to its kind; the compiler drops those that nothing uses.
        """
        numbers = (*range(word_of_role(self.kinds, 0)), *range(first, first + OF_A_ROLE))
        return [pk.load(self.code[self.queue, turn, k]) for k in numbers]

    def _clear(self, index: Any) -> None:
        """The first group of a role sets its block's part of the counters of the next launch to 0."""
        with nullcontext() if isinstance(index, int) else _if(index == 0):
            for counter in self._share(self.counters.shape[1]):
                pk.store(self.counters[1 - self.parity, counter], 0)

    def _check_numbers(self) -> None:
        """Check in the emulator, and in a launch for debugging, that numbers are in their ranges."""
        for name, of in {n: of for kind in self.kinds for n, of in kind.numbers.items()}.items():
            text = f"`{name}` must be from 0 to {of.below - 1}"
            for i in range(of.count or 1):
                number = pk.load(self.operands[name][i])
                pk.assert_((number >= 0) & (number < of.below), text)  # noqa: PT009

    def _share(self, count: Any) -> Iterator[Any]:
        """A loop over numbers below `count`, each of which one block has."""
        for k in for_loop(pk.range(pk.cdiv(count - self.block, self.blocks))):
            yield self.block + k * self.blocks

    def _turns(self) -> Iterator[Any]:
        """A loop over the places in the queue of the instructions that the block runs."""
        if self.tickets is None:
            yield from for_loop(pk.range(self.code.shape[1]))
        else:
            for (turn,) in for_loop(self.tasks):
                yield turn

    def _role(self, place: RolePlace, index: Any, first: int) -> None:
        """The loop of a role; first: the first of its words."""
        for turn in self._turns():
            words = self._words(turn, first)
            for number, kind in enumerate(self.kinds, 1):
                if (kind.name, place) in self.merging.found:
                    with _if(words[0] == number, kind.name):
                        self._run(kind, place, index, words)

    def _run(self, kind: Kind, place: RolePlace, index: Any, words: list[Any]) -> None:
        """What a role does of an instruction. It waits before it accesses what others write, and signals at its end."""
        nodes = current(kind.name).stack[-1].nodes
        begin = len(nodes)
        first, count, counter = words[-OF_A_ROLE:]
        if not self.apart:
            for k in for_loop(pk.range(first, first + count)):
                flag = self.counters[self.parity, pk.load(self.waits[k, 0])]
                pk.wait(flag, pk.load(self.waits[k, 1]))
        waiting = nodes[begin:]
        del nodes[begin:]
        with self.merging.record(kind.name, place, index):
            values = kind.values(self.operands, words)
            numbers = nodes[begin:]
            kind.record(self.operands, values, self.parity + 1)
        used = {v for node in nodes[begin:] for inner in within(node) for v in uses(inner)}
        unused = [n for n in numbers if isinstance(n, Call) and used.isdisjoint(n.results)]
        nodes[begin:] = [n for n in nodes[begin:] if n not in unused]
        mine = nodes[begin:]
        if self.apart:
            return
        sides = {"reads": True, "writes": self.rewrites}
        accesses = (i for i, n in enumerate(mine, begin) if self._takes_part([n], **sides))
        if (at := next(accesses, None)) is not None:
            nodes[at:at] = waiting
        writes = self._takes_part(mine, writes=True)
        of_engine = (c.op.effects.engine is Engine.COPY_OUT for c in calls(Block(mine)))
        if writes and any(of_engine):
            pk.store_wait()
        if writes or (self.rewrites and self._ends_reads(kind, place)):
            with _if(counter >= 0):
                pk.signal(self.counters[self.parity, counter], 1, op="add")

    def _ends_reads(self, kind: Kind, place: RolePlace) -> bool:
        """Whether reads of a tensor that instructions may write again are over at the end of a role."""
        return any(
            place in ends
            for (of, _, tensor), ends in self.read_ends.items()
            if of == kind.name and tensor in self.written
        )

    def _takes_part(self, nodes: Sequence[Node], **sides: bool) -> bool:
        """Whether nodes read, or write, a tensor that instructions write."""
        return not self.written.isdisjoint(accessed(nodes, **sides))

    def _check_tags(self) -> None:
        """Raise if a tensor has tags and is accessed without that of the launch."""
        for (kind, _), role in self.merging.found.items():
            for call in calls(role.body):
                touched = self.tagged.intersection(accessed([call], reads=True, writes=True))
                if touched and not call.op.effects.tagged:
                    name = min(touched).partition(".")[2]
                    raise LanguageError(
                        f"{kind}: the elements of `{name}` have tags, and are accessed here without",
                        loc=call.loc,
                        help="pk.load_tagged and pk.store_tagged access them in all instructions",
                    )
                if touched and call.args["tag"] is not self.tag_of[kind]:
                    raise LanguageError(
                        f"{kind}: the tag must be that of the launch",
                        loc=call.loc,
                        help="take it by the keyword `tag`, behind the `*`",
                    )

    def _check_rings(self) -> None:
        """Raise unless each side of a ring belongs to one role, as its barriers count the groups of one."""
        takers: dict[tuple[Any, str], tuple[str, RolePlace]] = {}
        for (kind, place), role in self.merging.found.items():
            for node in (node for node in walk(role.body) if isinstance(node, Acquire)):
                side = node.pipeline, node.side
                other, its_place = takers.setdefault(side, (kind, place))
                if its_place != place:
                    raise LanguageError(
                        f"{kind}: the role `{place[0]}` {node.side}s `{node.pipeline.name}`, which the role "
                        f"`{its_place[0]}` {node.side}s in {other}",
                        operands={"the ring": node.pipeline.loc, "taken at": node.loc},
                        help="let one role of the block take its stages in all instructions",
                    )


@contextmanager
def _if(condition: Any, kind: str = "") -> Iterator[None]:
    """A branch of the running kernel that binds no names; kind: that of the instruction that it runs, if any."""
    node = If(condition, Block(kind=kind), Block())
    builder = current("if")
    builder.append(node)
    with builder.inside(node.then):
        yield

"""Functions with roles of their own, recorded into the roles of one kernel, as the branches of an interpreter are.

Such a function is recorded once to find its roles and what it declares, and once in each role of the kernel: statements
outside of its roles in every one, those of a role in that role alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import Builder, current, recording
from pykittens.ir.nodes import Block, Call, Node, Role, walk
from pykittens.ir.structure import reads
from pykittens.ir.values import Scalar, Value
from pykittens.lang.homes import Homes, RolePlace, is_everywhere, makes_tiles

if TYPE_CHECKING:
    from pykittens.lang.roles import RoleContext

T = TypeVar("T")


@dataclass
class MergedRole:
    """A role of the kernel: how it is made, the function that has it first, and its group while it is recorded."""

    context: RoleContext[Any]
    first: str
    index: Scalar | None = None


@dataclass
class Merging:
    """The roles that functions have in common; for each function its roles, what is outside of them, and declarations.

    homes: of the functions whose values have some. is_kernel: the only function is a kernel with homes. function: the
    one that is recorded. place: the role of the kernel; None the first time, which finds its roles. counts,
    declarations, depth: its roles by kind and its declarations so far, and the open blocks around it. outer: the role
    of the kernel that an open role of the function replaces, if one is open. rings: those of all functions, each with
    its first view.
    """

    roles: dict[RolePlace, MergedRole] = field(default_factory=dict)
    found: dict[tuple[str, RolePlace], Role] = field(default_factory=dict)
    outside: dict[str, Block] = field(default_factory=dict)
    homes: dict[str, Homes] = field(default_factory=dict)
    declared: dict[tuple[str, int], Any] = field(default_factory=dict)
    is_kernel: bool = False
    function: str = ""
    place: RolePlace | None = None
    counts: Counter[str] = field(default_factory=Counter)
    declarations: int = 0
    depth: int = 0
    outer: list[Role | None] = field(default_factory=list)
    rings: dict[object, Any] = field(default_factory=dict)

    @property
    def bodies(self) -> dict[tuple[str, RolePlace], Block]:
        """What each role of each function does."""
        return {key: role.body for key, role in self.found.items()}

    @contextmanager
    def _open(self, function: str, place: RolePlace | None) -> Iterator[None]:
        builder = current(function)
        assert builder.merging is None, "functions with roles are not inside one another"
        builder.merging, self.function, self.place = self, function, place
        self.counts, self.declarations, self.depth = Counter(), 0, len(builder.stack)
        try:
            yield
            if builder.homes is not None:
                builder.homes.finish(builder.stack[-1])
        finally:
            builder.merging = builder.homes = None

    def survey(self, function: str, run: Callable[[], None]) -> None:
        """Record a function, outside of the roles of the kernel, only to find its roles and what it declares."""
        what = "the function" if self.is_kernel else "the instruction"
        outside = self.outside[function] = Block(owner=f"{what} `{function}`")
        with current(function).inside(outside):
            with self._open(function, None):
                run()
            self._check_outside(outside)
            if function in self.homes:
                self._survey_homes(function, run)
        if function in self.homes and not self.homes[function].used:
            raise LanguageError(
                f"pk.homes: nothing in {function} runs in a role",
                loc=self.homes[function].contexts["consumers"].loc,
                help="operations on vectors and tiles run with the consumers, after pk.homes",
            )
        if not any(name == function for name, _ in self.found):
            raise LanguageError(
                f"{function}: an instruction has roles, and this function has none",
                help="`with pk.warps(4) as w:` is a role of four warps, and `pk.homes(pk.warps(4))` makes roles by "
                "themselves",
            )

    @staticmethod
    def _check_outside(outside: Block) -> None:
        """Raise if something outside of roles does more than read, as each role would do it."""
        for node in walk(outside):
            if isinstance(node, Call) and not node.op.effects.only_reads:
                raise LanguageError(
                    f"{node.op.name}: must be in a role of the instruction, which has roles",
                    loc=node.loc,
                )

    def _survey_homes(self, function: str, run: Callable[[], None]) -> None:
        """Record a function whose values have homes until these are known, then once for each role."""
        homes, builder = self.homes[function], current(function)
        while not homes.is_known:
            with builder.inside(Block()), self._open(function, None):
                run()
        for home in [home for home in homes.roles if home in homes.used]:
            place, role = homes.places[home], homes.roles[home]
            self._join(place, homes.contexts[home])
            self.found[function, place] = role
            builder.role = role
            with builder.inside(role.body), self.record(function, place, role.index):
                run()
            builder.role = None

    def settle(self, contexts: dict[str, RoleContext[Any]], builder: Builder) -> Scalar:
        """The values of the function have homes; returns the group of the consumers."""
        if builder.homes is not None or self.counts or len(builder.stack) != self.depth:
            raise LanguageError(
                "pk.homes: must be called once, outside loops and branches, in a function without roles"
            )
        for node in walk(builder.stack[-1]):
            if isinstance(node, Call) and (makes_tiles(node) or not is_everywhere(node)):
                raise LanguageError(
                    f"{node.op.shown}: must be after pk.homes, which makes the role that runs it",
                    loc=node.loc,
                    help="only numbers may be computed and read before pk.homes",
                )
        if self.function not in self.homes:
            self.homes[self.function] = Homes.of(contexts, builder)
        builder.homes = self.homes[self.function]
        group = self.roles[self.place].index if self.place is not None else None
        return self.homes[self.function].begin(self.place, group)

    def _join(self, place: RolePlace, context: RoleContext[Any]) -> MergedRole:
        """The role of the kernel of which a role of the function becomes part."""
        known = self.roles.setdefault(place, MergedRole(context, self.function))
        if known.context.shape != context.shape:
            raise LanguageError(
                f"pk.{context.kind}: {self.function} has {context.description}, and {known.first} has "
                f"{known.context.description}",
                help="instructions share the warps of a block: the groups of a role have equal numbers, and registers "
                "in all of them or in none",
            )
        if known.context.registers is not None and context.registers is not None:
            known.context.registers = max(known.context.registers, context.registers)
        return known

    @contextmanager
    def record(self, function: str, place: RolePlace, index: Scalar | None) -> Iterator[None]:
        """Record a function in a role of the kernel, whose group is `index`."""
        self.roles[place].index = index
        with self._open(function, place):
            yield

    # -- called by the words of the language -----------------------------------------------------

    def enter(self, context: RoleContext[Any], builder: Builder) -> Any:
        """A role of the function begins; returns the index of its group."""
        if builder.homes is not None:
            raise LanguageError(
                f"pk.{context.kind}: the values of this function have homes; it has no other roles"
            )
        if self.outer:
            raise LanguageError(f"pk.{context.kind}: a role cannot be inside another role")
        if len(builder.stack) != self.depth:
            raise LanguageError(
                f"pk.{context.kind}: a role cannot be inside a run-time loop or branch"
            )
        place, context.loc = (context.kind, self.counts[context.kind]), Loc.here()
        self.counts[context.kind] += 1
        known = self._join(place, context)
        self.outer.append(builder.role)
        if place == self.place:
            return known.index
        role = context.opened(builder)
        if self.place is None:
            self.found[self.function, place] = role
        return role.index

    def leave(self, builder: Builder) -> None:
        """The role of the function ends; what another role of the kernel does is dropped."""
        inner, builder.role = builder.role, self.outer.pop()
        if inner is not builder.role:
            builder.stack.pop()

    def declare(self, word: str, make: Callable[[], T], builder: Builder) -> T:
        """What a function declares outside of its roles, such as a pipeline, made the first time it is recorded."""
        if self.outer or len(builder.stack) != self.depth:
            raise LanguageError(f"{word}: must be outside roles, loops and branches")
        key = self.function, self.declarations
        self.declarations += 1
        if key not in self.declared:
            stack, builder.stack = builder.stack, builder.stack[:1]
            if self.is_kernel:
                _move_numbers(stack[-1], stack[0])
            builder.merging = None
            try:
                self.declared[key] = make()
            finally:
                builder.stack, builder.merging = stack, self
        found: T = self.declared[key]
        return found


def declared(word: str, make: Callable[[], T]) -> T:
    """What `make` declares in a kernel; in a function that is recorded several times, once for all its recordings."""
    builder = recording()
    if builder is None:
        return make()
    if builder.merging is None:
        builder.declared.append(made := make())
        return made
    found: T = builder.merging.declare(word, make, builder)
    return found


def declared_by_kernel(word: str, make: Callable[[], T]) -> T:
    """What `make` declares of the kernel as a whole, once for all its recordings; an instruction cannot."""
    merging = current(word.removeprefix("pk.")).merging
    if merging is not None and not merging.is_kernel:
        raise LanguageError(
            f"{word}: an instruction cannot use it, as it concerns the kernel as a whole",
            help="a field, a parameter behind the `*`, says which part of the work an instruction is",
        )
    return declared(word, make)


def _move_numbers(block: Block, outer: Block) -> None:
    """Move the numbers of a block that follow from arguments to the block around it, where a declaration needs them."""
    stay = list[Node]()
    for node in block.nodes:
        if (
            isinstance(node, Call)
            and node.op.effects.pure
            and all(isinstance(x, Scalar) for x in node.results)
            and all(v.block in (None, outer) for v in reads(node) if isinstance(v, Value))
        ):
            outer.nodes.append(node)
            for value in node.results:
                value.block = outer
        else:
            stay.append(node)
    block.nodes[:] = stay


def record_homes(run: Callable[[], Any], builder: Builder) -> Any:
    """Record a kernel whose values have homes; returns what it does. It has been recorded up to pk.homes."""
    builder.stack, builder.role = [builder.kernel.body], None
    name = builder.kernel.name
    merging = Merging(is_kernel=True)
    merging.declared = {(name, i): made for i, made in enumerate(builder.declared)}
    merging.survey(name, run)
    result = None
    for place, of in merging.roles.items():
        with of.context as index, merging.record(name, place, index):
            result = run()
    return result

"""Conditions that a group waits for, and operations of a group that an engine still carries out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.emulate.memory import Array, GlobalTile, poison
from pykittens.emulate.regions import SharedRegion
from pykittens.emulate.schedule import SeededSchedule
from pykittens.emulate.watch import NOBODY, Watcher
from pykittens.errors import DeadlockError, KernelError, LanguageError, Loc
from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, Value

MOST_ALIKE = 1000  # passes of a loop, with all other groups stopped


@dataclass(slots=True)
class Wait:
    """A wait of a group: whether the group may continue, and a description of the condition.

    late: the group waits for engines, which finish only when no other group can continue. on: the barriers, flags or
    turns that it waits for.
    """

    ready: Callable[[], bool]
    describe: Callable[[], str]
    loc: Loc | None
    late: bool = False
    on: tuple[Any, ...] = ()


@dataclass
class Signals:
    """How often a group has signalled a barrier, flag or turn, and the line of the last time."""

    what: Any
    count: int = 0
    loc: Loc | None = None


def signal_key(what: Any) -> object:
    """Equal for all tiles and regions that are the same flag; other things are their own keys."""
    is_element = isinstance(what, GlobalTile | SharedRegion)
    return what.element().ctypes.data if is_element else what


def pause(loc: Loc | None, late: bool = False) -> Wait:
    """A stop at which other groups may continue; if `late`, until engines alone can."""
    return Wait(lambda: True, lambda: "", loc, late)


def wait_of_call(call: Call, args: dict[str, Any]) -> Wait:
    """The wait of an operation for semaphores, flags or turns."""
    missing = call.op.missing
    assert missing is not None, f"{call.op.name} waits without a condition"

    def awaited() -> str | None:
        with faults_at(call):
            return missing(**args)

    effects = call.op.effects
    on = () if effects.tagged else tuple(args[name] for name in effects.waits)
    return Wait(
        lambda: awaited() is None, lambda: f"at {call.loc} for {awaited()}", call.loc, on=on
    )


class Passes:
    """The passes of a `while` loop, whose condition may depend on other groups."""

    def __init__(self, loc: Loc | None) -> None:
        self.loc = loc
        self.before: list[bytes] | None = None
        self.alike = 0

    def are_alike(self, values: list[Any]) -> bool:
        """Whether this pass finds the values of the last pass; raises if too many passes in a row do."""
        if any(isinstance(v, ProductInFlight) for v in values):
            return False
        found = [np.asarray(v).tobytes() for v in values]
        self.alike = self.alike + 1 if found == self.before else 0
        self.before = found
        if self.alike > MOST_ALIKE:
            raise DeadlockError(
                f"deadlock: a loop never ends: {MOST_ALIKE} passes found the same values",
                loc=self.loc,
                help="an ordinary load may not see the stores of other blocks, and these may not run at the same time: "
                "wait for a flag with pk.wait, for a semaphore with its .wait",
            )
        return self.alike > 0


class ProductInFlight:
    """A product that has been issued, and its result: `finished` after a wait has covered the product.

    Before, a read finds the result if it has been computed, otherwise the contents of unwritten memory.
    registers: the register values that the product reads, which must not be overwritten.
    """

    __slots__ = ("args", "call", "finished", "registers", "value", "watch")

    def __init__(
        self, call: Call, args: dict[str, Any], registers: set[Value], watch: Watcher
    ) -> None:
        self.call, self.args, self.registers, self.watch = call, args, registers, watch
        self.value: Array | None = None
        self.finished = False

    def compute(self) -> None:
        if self.value is None:
            args = {
                n: a.value if isinstance(a, ProductInFlight) else a for n, a in self.args.items()
            }
            self.value = self.call.op.evaluate(args)
            self.watch.computes(self.call, args, self.value)
            self.args = {}  # the accumulator would keep all products before alive

    def read(self) -> Array:
        """The value that a read finds."""
        if self.value is not None:
            return self.value
        (result,) = self.call.results
        return np.full(result.type.shape, poison(result.dtype), result.dtype.numpy)  # type: ignore[union-attr]


class Engines:
    """The products and stores of one group that no wait has covered yet, oldest first.

    The schedule decides whether an operation is carried out when it is issued or when a wait covers it.
    """

    def __init__(self, schedule: SeededSchedule, watch: Watcher = NOBODY) -> None:
        self.schedule, self.watch = schedule, watch
        self.products: deque[ProductInFlight] = deque()
        self.reading: deque[Store] = deque()
        self.writing: deque[Store] = deque()

    def multiply(self, call: Call, args: dict[str, Any], now: bool) -> ProductInFlight:
        """Start a product; products finish in order, so its accumulator is complete when it is computed.

        now: whether it has read its operands when the call returns, as a product of single warps.
        """
        accumulator = call.args.get(call.op.effects.accumulates or "")
        registers: set[Value] = {
            a
            for a in call.args.values()
            if not now and isinstance(a, RegTile) and a is not accumulator
        }
        started = ProductInFlight(call, args, registers, self.watch)
        self.products.append(started)
        if now or self.schedule.at_once():
            for product in self.products:
                product.compute()
        return started

    def store(self, call: Call, args: dict[str, Any]) -> None:
        """Start a store; it reads its source and writes its target at the latest when waits cover this."""
        store = Store(call, args)
        self.reading.append(store)
        self.writing.append(store)
        if self.schedule.at_once():
            store.read()
            if self.schedule.at_once():
                store.write()

    def finish_products(self, pending: int) -> None:
        """Wait until at most `pending` products are unfinished."""
        while len(self.products) > pending:
            product = self.products.popleft()
            product.compute()
            product.finished = True

    def finish_stores(self, pending: int, read: bool) -> None:
        """Wait until at most `pending` stores still read their source (`read`) or still write their target."""
        queue = self.reading if read else self.writing
        while len(queue) > pending:
            store = queue.popleft()
            store.read()
            if not read:
                store.write()
                if self.reading and self.reading[0] is store:
                    self.reading.popleft()

    def held_by(self, value: Value) -> Call | None:
        """The unfinished product that reads the registers of a value, None if there is none."""
        return next((p.call for p in self.products if value in p.registers), None)

    def check_finished(self) -> None:
        """Raise if the group has ended while products are in flight that no wait covers."""
        if self.products:
            call = self.products[0].call
            raise LanguageError(
                f"{call.op.name}: nothing waits for a product with managed=False before its role ends",
                loc=call.loc,
                help="pk.mma_wait() waits for all products in flight",
            )


class Store:
    """A copy in flight from shared memory to a tensor."""

    def __init__(self, call: Call, args: dict[str, Any]) -> None:
        self.call, self.args = call, args
        self.has_read = self.has_written = False

    def read(self) -> None:
        if not self.has_read:
            self.has_read = True
            self.args = {
                name: a.snapshot() if isinstance(a, SharedRegion) else a
                for name, a in self.args.items()
            }

    def write(self) -> None:
        if not self.has_written:
            self.has_written = True
            with faults_at(self.call):
                self.call.op.evaluate(self.args)


class faults_at:  # noqa: N801  (reads as a word)
    """Reports errors at the line of the call that raises them."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: object, trace: object) -> None:
        if isinstance(fault, KernelError):
            fault.loc = self.call.loc

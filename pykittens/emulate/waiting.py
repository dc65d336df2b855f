"""Conditions that a group waits for, and the operations it started that an engine carries on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.emulate.memory import Array, poison
from pykittens.emulate.regions import SharedRegion
from pykittens.emulate.schedule import Schedule
from pykittens.errors import DeadlockError, KernelError, LanguageError, Loc
from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, Value

MOST_ALIKE = 1000  # passes of a loop, all others having gone as far as they can


@dataclass(frozen=True)
class Wait:
    """A place where a group stops: whether it may go on, and what it waits for in words.

    late: it waits for engines, which take as long as others have something to do.
    """

    ready: Callable[[], bool]
    told: Callable[[], str]
    loc: Loc | None
    late: bool = False


def wait_for_engines(loc: Loc | None) -> Wait:
    """The wait for stores to have been written."""
    return Wait(lambda: True, lambda: "", loc, late=True)


def wait_of_call(call: Call, args: dict[str, Any]) -> Wait:
    """The wait of an operation for semaphores, flags or turns."""
    missing = call.op.missing
    assert missing is not None, f"{call.op.name} waits and does not say for what"

    def ask() -> str | None:
        with faults_at(call):
            return missing(**args)

    return Wait(lambda: ask() is None, lambda: f"at {call.loc} for {ask()}", call.loc)


class Passes:
    """The passes of a `while` loop of a group, whose condition may be one that only others can end."""

    def __init__(self, loc: Loc | None) -> None:
        self.loc = loc
        self.before: list[bytes] | None = None
        self.alike = 0

    def are_alike(self, values: list[Any]) -> bool:
        """Whether this pass finds the values of the one before; raise after so many that no one can change them."""
        if any(isinstance(v, InFlight) for v in values):
            return False
        found = [np.asarray(v).tobytes() for v in values]
        self.alike = self.alike + 1 if found == self.before else 0
        self.before = found
        if self.alike > MOST_ALIKE:
            raise DeadlockError(
                f"deadlock: a loop goes round for ever, as {MOST_ALIKE} passes found the same values",
                loc=self.loc,
                help="an ordinary load need not see what others store, and they need not run at the same time: wait "
                "for a flag with pk.wait, for a semaphore with its .wait",
            )
        return self.alike > 0


class InFlight:
    """The result of a product that has been issued: `finished` once a wait covered it.

    Before, a read finds what has been computed so far, or what unwritten memory holds.
    """

    __slots__ = ("call", "finished", "value")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.value: Array | None = None
        self.finished = False

    def read(self) -> Array:
        """The value as a read finds it."""
        if self.value is not None:
            return self.value
        (made,) = self.call.results
        return np.full(made.type.shape, poison(made.dtype), made.dtype.numpy)  # type: ignore[union-attr]


@dataclass(eq=False)
class Product:
    """A product under way; `registers` are the values it reads, which must stay as they are."""

    call: Call
    result: InFlight
    args: dict[str, Any]
    registers: set[Value]

    def compute(self) -> None:
        if self.result.value is None:
            known = {n: a.value if isinstance(a, InFlight) else a for n, a in self.args.items()}
            self.result.value = self.call.op.evaluate(known)


class Engines:
    """The products and stores of one group that are not known to be finished, oldest first.

    The schedule says whether one is carried out when it is asked for, or when a wait covers it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.products: deque[Product] = deque()
        self.reading: deque[Store] = deque()
        self.writing: deque[Store] = deque()

    def multiply(self, call: Call, args: dict[str, Any]) -> InFlight:
        """Start a product; its accumulator is complete when it is computed, as products finish in order."""
        result = InFlight(call)
        accumulator = call.args.get(call.op.effects.accumulates or "")
        registers: set[Value] = {
            a for a in call.args.values() if isinstance(a, RegTile) and a is not accumulator
        }
        self.products.append(Product(call, result, args, registers))
        if self.schedule.at_once():
            for product in self.products:
                product.compute()
        return result

    def store(self, call: Call, args: dict[str, Any]) -> None:
        """Start a store; its source is read and its target written until waits cover that."""
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
            product.result.finished = True

    def finish_stores(self, pending: int, read: bool) -> None:
        """Wait until at most `pending` stores still read their source, or else still write their target."""
        queue = self.reading if read else self.writing
        while len(queue) > pending:
            store = queue.popleft()
            store.read()
            if not read:
                store.write()
                if self.reading and self.reading[0] is store:
                    self.reading.popleft()

    def held_by(self, value: Value) -> Call | None:
        """The unfinished product that reads the registers of a value, if there is one."""
        return next((p.call for p in self.products if value in p.registers), None)

    def check_finished(self) -> None:
        """Raise if the group has ended and products are in flight that nobody waited for."""
        if self.products:
            call = self.products[0].call
            raise LanguageError(
                f"{call.op.name}: nobody waits for a product with managed=False before its role ends",
                loc=call.loc,
                help="pk.mma_wait() waits for all that are in flight",
            )


class Store:
    """A copy from shared memory to a tensor that has been started."""

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
    """Tells faults at the line of the call that they come from."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: object, trace: object) -> None:
        if isinstance(fault, KernelError):
            fault.loc = self.call.loc

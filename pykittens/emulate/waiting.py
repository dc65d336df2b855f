"""What a group waits for, and what it has started that an engine carries on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.emulate.memory import Array, SharedRegion, poison
from pykittens.errors import KernelError, LanguageError, Loc
from pykittens.ir.nodes import Call


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


class InFlight:
    """The result of a product that has been issued; `value` is there once a wait covered it.

    `unwritten` is what it holds before, where the user and not the compiler waits for it.
    """

    __slots__ = ("unwritten", "value")
    value: Array | None

    def __init__(self, unwritten: Array | None) -> None:
        self.value, self.unwritten = None, unwritten

    def read(self) -> Array:
        """The value as a read finds it."""
        if self.value is not None:
            return self.value
        assert self.unwritten is not None, (
            "a tile in flight is read before its wait: the wait pass is wrong"
        )
        return self.unwritten


class Engines:
    """The products and stores of one group that are not known to be finished, oldest first."""

    def __init__(self) -> None:
        self.products: deque[tuple[Call, Callable[[], None]]] = deque()
        self.reading: deque[_Store] = deque()
        self.writing: deque[_Store] = deque()

    def multiply(self, call: Call, args: dict[str, Any]) -> InFlight:
        """Start a product; operands are read when a wait covers it, its accumulator then is complete."""
        unwritten = None
        if not call.managed:
            (made,) = call.results
            unwritten = np.full(made.type.shape, poison(made.dtype), made.dtype.numpy)  # type: ignore[union-attr]
        result = InFlight(unwritten)

        def compute() -> None:
            known = {n: a.value if isinstance(a, InFlight) else a for n, a in args.items()}
            result.value = call.op.evaluate(known)

        self.products.append((call, compute))
        return result

    def store(self, call: Call, args: dict[str, Any]) -> None:
        """Start a store; its source is read and its target written when waits cover that."""
        store = _Store(call, args)
        self.reading.append(store)
        self.writing.append(store)

    def finish_products(self, pending: int) -> None:
        """Wait until at most `pending` products are unfinished."""
        while len(self.products) > pending:
            _, compute = self.products.popleft()
            compute()

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

    def check_finished(self) -> None:
        """Raise if the group has ended and products are in flight that nobody waited for."""
        if self.products:
            call, _ = self.products[0]
            raise LanguageError(
                f"{call.op.name}: nobody waits for a product with managed=False before its role ends",
                loc=call.loc,
                help="pk.mma_wait() waits for all that are in flight",
            )


class _Store:
    """A copy from shared memory to a tensor that has been started."""

    def __init__(self, call: Call, args: dict[str, Any]) -> None:
        self.call, self.args = call, args
        self.has_read = False

    def read(self) -> None:
        if not self.has_read:
            self.has_read = True
            self.args = {
                name: SharedRegion(a.array.copy()) if isinstance(a, SharedRegion) else a
                for name, a in self.args.items()
            }

    def write(self) -> None:
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

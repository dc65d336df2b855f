"""Measures candidates in three stages: a few launches of each, more of the fastest third, finalists in turn."""

from __future__ import annotations

import datetime
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from pykittens.errors import ArgumentError, BackendError, KernelError, Loc
from pykittens.logger import log
from pykittens.runtime import nvrtc, tuning_records
from pykittens.runtime.progress import Progress, Stage, Step
from pykittens.runtime.timing import LaunchFault, Timer

C = TypeVar("C")

# Launches of a candidate in the first, second and last stage; in the last stage the finalists alternate.
FEW, MORE, ROUNDS = 3, 7, 15
FINALISTS = 3
# Approximate time for all launches of one candidate in one stage; slow kernels are launched less often.
STAGE_MILLISECONDS = 40.0
# Medians that differ by less are equal within noise; the candidate that comes first in the list wins.
NOISE = 0.01
# Each compilation takes some hundred megabytes of memory.
MAX_COMPILERS = 16


@dataclass(eq=False)
class Runner(Generic[C]):
    """One candidate. times: milliseconds of each launch in its last stage. error: the fault, if it was raised."""

    candidate: C
    times: list[float] = field(default_factory=list)
    stage: int = 0
    checked: bool = False
    fault: str | None = None
    error: KernelError | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    def refuse(self, error: KernelError) -> None:
        """Note that the candidate cannot be used."""
        self.fault, self.error = error.message, error

    def outcome(self) -> tuning_records.Outcome:
        median = round(self.median, 6) if self.times else None
        return tuning_records.Outcome(
            repr(self.candidate), median, len(self.times), self.checked, self.fault
        )


class Autotuner(Generic[C]):
    """The autotuner of one problem: compiles, measures and checks the candidates, and records the choice."""

    def __init__(
        self,
        name: str,
        candidates: Sequence[C],
        place: tuning_records.RecordFile | None,
        show: Progress,
    ) -> None:
        self.name, self.place, self.show = name, place, show
        self.begin = time.monotonic()
        self.runners = [Runner(c) for c in candidates]
        for runner in self.runners:
            if place is not None:
                runner.fault = place.wrong(repr(runner.candidate))

    @property
    def left(self) -> list[Runner[C]]:
        """The candidates without a fault, fastest first."""
        fit = [r for r in self.runners if r.fault is None]
        return sorted(fit, key=lambda r: (-r.stage, r.median if r.times else 0.0))

    def compile(self, compile: Callable[[C], object]) -> None:
        """Compile all candidates side by side: each compilation is a process, for which a thread waits."""
        runners = self.left

        def compiled(runner: Runner[C]) -> None:
            try:
                compile(runner.candidate)
            except KernelError as error:
                runner.refuse(error)
            except Exception as error:
                error.add_note(f"in {runner.candidate!r}; pk.require leaves a candidate out")
                raise

        with ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_COMPILERS)) as pool:
            done = pool.map(compiled, runners)
            try:
                for i, runner in enumerate(runners):
                    next(done)
                    self._step("compiled", i + 1, len(runners), runner)
            except BaseException:  # such as Ctrl-C
                pool.shutdown(wait=False, cancel_futures=True)
                nvrtc.stop()
                raise

    def decide(
        self, run: Callable[[C], object], check: Callable[[C], str | None], timer: Timer
    ) -> C:
        """Measure, check and compare the candidates; record the choice and return it."""
        timer.settle(patient=True)  # faults of earlier launches are not the candidates'
        for i, runner in enumerate(everyone := self.left):
            self._measure(runner, run, timer, FEW)
            self._step("measured", i + 1, len(everyone), runner)
        best = self.left[: max(FINALISTS, -(-len(self.left) // 3))]
        for i, runner in enumerate(best):
            self._measure(runner, run, timer, MORE)
            self._step("measured again", i + 1, len(best), runner)
        finalists = self._finalists(check, timer)
        self._compare(finalists, run, timer)
        return self._chosen(finalists)

    def _measure(
        self, runner: Runner[C], run: Callable[[C], object], timer: Timer, most: int
    ) -> None:
        with self._blamed(runner, timer):
            launch = partial(run, runner.candidate)
            (warm_up,) = timer.times(launch, 1)
            count = _count(most, warm_up)
            runner.times = timer.times(launch, count)
            runner.stage += 1

    def _finalists(self, check: Callable[[C], str | None], timer: Timer) -> list[Runner[C]]:
        """The fastest candidates whose results are right; the next one replaces a wrong one."""
        finalists: list[Runner[C]] = []
        for runner in self.left:
            if len(finalists) == FINALISTS:
                break
            reason = None
            with self._blamed(runner, timer):
                reason = check(runner.candidate)
                runner.checked = reason is None
            if runner.checked:
                finalists.append(runner)
            if reason is not None:
                self._wrong(runner, reason)
            self._step("checked", len(finalists), FINALISTS, runner)
        return finalists

    def _compare(
        self, finalists: list[Runner[C]], run: Callable[[C], object], timer: Timer
    ) -> None:
        """Launch the finalists alternately, in both orders, so that drifting clocks favour none."""
        if len(finalists) < 2:
            return
        rounds = max(FEW, _count(ROUNDS, sum(r.median for r in finalists) / len(finalists)))
        for runner in finalists:
            runner.times = []
        for i in range(rounds):
            for runner in finalists if i % 2 == 0 else reversed(finalists):
                if runner.fault is None:
                    with self._blamed(runner, timer):
                        runner.times += timer.times(partial(run, runner.candidate), 1)
            self._step("compared", i + 1, rounds)

    def _chosen(self, finalists: list[Runner[C]]) -> C:
        """The fastest finalist, by list order if several are equally fast; it is recorded."""
        right = [r for r in finalists if r.fault is None]
        if not right:
            none = KernelError(
                f"{self.name}: none of {len(self.runners)} configurations can be used",
                operands={repr(r.candidate): r.fault for r in self.runners},
            )
            errors = [r.error for r in self.runners if r.error is not None]
            if len(errors) == len(self.runners):
                raise errors[0] from none
            raise none
        least = min(r.median for r in right)
        chosen = next(r for r in self.runners if r in right and r.median <= (1 + NOISE) * least)
        if self.place is not None:
            record = tuning_records.Record(
                self.name,
                self.place.key,
                self.place.conditions,
                repr(chosen.candidate),
                datetime.datetime.now().isoformat(timespec="seconds"),
                round(time.monotonic() - self.begin, 2),
                tuple(r.outcome() for r in self.runners),
            )
            self.place.write(record)
        self._tell(Step(self.name, "done", best=chosen.median, note=repr(chosen.candidate)))
        return chosen.candidate

    # -- faults --------------------------------------------------------------------------------

    @contextmanager
    def _blamed(self, runner: Runner[C], timer: Timer) -> Iterator[None]:
        """Record a KernelError as the candidate's fault. A candidate that stops the GPU is never tried again."""
        try:
            yield
        except Exception as error:
            fault = error if isinstance(error, LaunchFault) else _fault(timer)
            if fault is not None:
                if self.place is not None:
                    self.place.write_wrong(repr(runner.candidate), fault.message)
                raise BackendError(
                    f"{self.name}: tuning ends with {runner.candidate!r}: {fault.message}",
                    help="start the program again: it will skip this configuration",
                ) from error
            if not isinstance(error, KernelError):
                raise
            runner.refuse(error)

    def _wrong(self, runner: Runner[C], reason: str) -> None:
        runner.fault = reason
        if self.place is not None:
            self.place.write_wrong(repr(runner.candidate), reason)
        text = (
            f"{self.name}: {runner.candidate!r} computes something wrong and is not used: {reason}"
        )
        loc = Loc.here(ArgumentError.beyond) or Loc.here()  # the user's call
        if loc is None:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            warnings.warn_explicit(text, RuntimeWarning, loc.file, loc.line)

    def _step(self, stage: Stage, done: int, total: int, runner: Runner[C] | None = None) -> None:
        medians = [r.median for r in self.runners if r.fault is None and r.times]
        note = ""
        if runner is not None and runner.fault is not None:
            note = f"without {runner.candidate!r}: {runner.fault}"
        self._tell(Step(self.name, stage, done, total, min(medians, default=None), note))

    def _tell(self, step: Step) -> None:
        if step.note:
            log.info("%s", step)
        self.show(step)


def _fault(timer: Timer) -> LaunchFault | None:
    """The state of the GPU after an error, None if it still works."""
    try:
        timer.settle()
    except LaunchFault as fault:
        return fault
    return None


def _count(most: int, milliseconds: float) -> int:
    """The number of launches for a kernel that takes this many milliseconds."""
    return max(1, min(most, int(STAGE_MILLISECONDS / max(milliseconds, 1e-3))))

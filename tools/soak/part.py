"""A part of the search: cases drawn from seeds, run in a process that may be lost, and made smaller where they fail.

Hypothesis draws the cases and makes them smaller. A case is kept as an expression, so that a file can hold it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from pykittens.errors import ResourceError
from tools.watched import Worker

SEQUENCES = ("linear", "mamba2", "gated", "delta", "based", "hedgehog", "conv", "long_conv")
NAMES = (
    "tiles",
    "pipelines",
    "loops",
    "products",
    "attention",
    *SEQUENCES,
    "calls",
    "threads",
    "cache",
)
REFUSED = "refused"
MODULES = {"tiles": "programs", "pipelines": "programs", "loops": "programs", "threads": "calls"}
MODULES |= dict.fromkeys(SEQUENCES, "sequences")
FILE = '''"""{part}, seed {seed}: {fault}

Run it in a checkout of Pykittens: PYTHONPATH=. python {name}
{source}"""

from tools.soak.part import fault_of

CASE = """
{case}
"""

if __name__ == "__main__":
    print(fault_of(("{part}", CASE, {on_gpu})) or "right")
'''


@dataclass(frozen=True)
class Part:
    """What is searched.

    cases: the strategy of a seed's cases, of which there are `each`, on a GPU or in the emulator. fault: of a case;
    empty if it is right. imports: statements after which repr(case) is an expression. emulated, on_gpu: how many cases
    a search has. seconds: the limit for a case. source: what a reader would like to see of a case. simpler: cases to
    try in the place of one that fails, beside those that Hypothesis tries.
    """

    cases: Callable[[int, bool], SearchStrategy[Any]]
    fault: Callable[[Any, bool], str]
    imports: str
    each: int
    emulated: int
    on_gpu: int
    seconds: float = 60
    source: Callable[[Any], str] = lambda case: ""
    simpler: Callable[[Any], Iterable[Any]] = lambda case: ()

    def case(self, text: str) -> Any:
        """The case that a text stands for."""
        names: dict[str, Any] = {"inf": float("inf"), "nan": float("nan")}
        exec(self.imports, names)
        return eval(text, names)


@dataclass
class Found:
    """The cases of a seed: their number, how many were refused, the hashes of their texts, the smallest that failed."""

    seed: int
    cases: int = 0
    refused: int = 0
    texts: set[bytes] = field(default_factory=set)
    case: str = ""
    fault: str = ""


@functools.cache
def part(name: str) -> Part:
    """The part of a name."""
    module = import_module(f"tools.soak.{MODULES.get(name, name)}")
    found: Part = getattr(module, name.upper())
    return found


def fault_of(task: tuple[str, str, bool]) -> str:
    """The fault of a case: the name of its part, its text, and whether it runs on a GPU."""
    name, text, on_gpu = task
    made = part(name)
    try:
        return made.fault(made.case(text.strip()), on_gpu)
    except ResourceError as fault:  # a GPU has not as much as the case asks for
        return f"{REFUSED}: {fault}"
    except Exception as fault:  # what a case raises is its fault
        return f"{type(fault).__name__}: {fault}"


@functools.cache
def _worker() -> Worker:
    """The process that runs the cases of this one."""
    return Worker(fault_of)


def each_case(made: Part, seed: int, on_gpu: bool, trial: Callable[[Any], None]) -> None:
    """Run a trial on the cases of a seed; if one raises, on smaller ones, and raise for the smallest."""
    settings = hypothesis.settings(
        max_examples=made.each,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )

    def run(case: Any) -> None:
        trial(case)

    hypothesis.seed(seed)(settings(hypothesis.given(made.cases(seed, on_gpu))(run)))()


def search(name: str, seed: int, on_gpu: bool) -> Found:
    """The cases of a seed, up to the first that fails, which is then made smaller while its fault is of that kind."""
    made, found, failed = part(name), Found(seed), list[tuple[str, str]]()

    def is_wrong(case: Any) -> bool:
        text = repr(case)
        fault = _worker().fault((name, text, on_gpu), made.seconds)
        if not failed:
            found.cases += 1
            found.texts.add(hashlib.sha256(text.encode()).digest()[:8])
            found.refused += fault.startswith(REFUSED)
        if (
            not fault
            or fault.startswith(REFUSED)
            or (failed and _kind(fault) != _kind(failed[0][1]))
        ):
            return False
        failed.append((text, fault))
        return True

    def trial(case: Any) -> None:
        assert not is_wrong(case)

    # A fault that does not come each time is kept as well.
    with contextlib.suppress(AssertionError, Flaky), contextlib.redirect_stdout(io.StringIO()):
        each_case(made, seed, on_gpu, trial)
    if failed:
        found.case, found.fault = failed[-1]
        while any(is_wrong(case) for case in made.simpler(made.case(found.case))):
            found.case, found.fault = failed[-1]
    return found


def _kind(fault: str) -> str:
    return fault.partition(":")[0]


def written(name: str, found: Found, on_gpu: bool, folder: Path) -> Path:
    """The file that runs a case which failed."""
    made = part(name)
    source = made.source(made.case(found.case))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}_{found.seed}.py"
    text = FILE.format(
        part=name,
        seed=found.seed,
        fault=_quoted(found.fault.strip()),
        name=path.name,
        source="\n" + _quoted(source.strip()) + "\n" if source else "",
        case=_quoted(found.case),
        on_gpu=on_gpu,
    )
    path.write_text(text)
    return path


def _quoted(text: str) -> str:
    """A text inside a string of three quotes."""
    return text.replace("\\", "\\\\").replace("\0", "").replace('"""', '\\"\\"\\"')

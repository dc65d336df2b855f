"""What tuning found is found again by the next process, and by none that differs in what counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykittens.runtime import cache, cache_folder, driver, nvrtc, tuning_records
from pykittens.runtime.program_files import files_of
from tests.runtime.c_programs import needs_compiler
from tests.runtime.tuning import KEY, Rows, Work

pytestmark = needs_compiler
Makes = Callable[..., Work]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def it(work: Makes) -> Work:
    """A kernel that has been tuned: the second of four candidates is the fastest, the third wrong."""
    made = work({1: 1.0, 2: 0.5, 3: 0.25, 4: 2.0})
    made.wrong = {Rows(3): "1 element is NaN"}
    with pytest.warns(RuntimeWarning):
        assert made.tune() == 2
    return made


def forget() -> None:
    """What a new process knows: what is on disk."""
    tuning_records._found.clear()


def files() -> list[Path]:
    return sorted(tuning_records.folder().rglob("*.json"))


def problem_file() -> Path:
    (path,) = [p for p in files() if "outcomes" in p.read_text()]
    return path


def test_the_file_can_be_read_by_people(it: Work) -> None:
    data = json.loads(problem_file().read_text())
    assert problem_file().parent.name == "product"
    assert data["kernel"] == "product"
    assert data["key"] == KEY
    assert data["best"] == "Rows(rows=2)"
    programs = data["conditions"].pop("programs")
    assert len(programs) == 16
    assert data["conditions"] == {
        "device": "a GPU",
        "multiprocessors": 132,
        "driver": "13.0",
        "compiler": ".".join(map(str, nvrtc.version())),
        "target": "sm_90a",
        "pykittens": "0.1.0",
    }
    by_name = {o["candidate"]: o for o in data["outcomes"]}
    assert list(by_name) == [f"Rows(rows={rows})" for rows in (1, 2, 3, 4)]
    # A float of the driver's has 24 bits, and the clock goes on.
    assert by_name["Rows(rows=2)"]["milliseconds"] == pytest.approx(0.5, rel=1e-4)
    assert by_name["Rows(rows=2)"]["launches"] == 15
    assert [o["checked"] for o in by_name.values()] == [True, True, False, True]
    assert by_name["Rows(rows=3)"]["fault"] == "1 element is NaN"


def test_all_records_are_listed(it: Work) -> None:
    it.tune({"m": 2})
    found = list(tuning_records.records())
    assert [r.kernel for r in found] == ["product"] * 2
    assert {r.key.get("m") for r in found} == {4096, 2}
    assert all(r.best == "Rows(rows=2)" and len(r.outcomes) == 4 for r in found)


# Asks for what is remembered, and fails where a candidate is launched.
SECOND = """
import sys
from pathlib import Path
from pykittens.runtime import driver
from tests.runtime.tuning import Work
driver._LIBRARY = sys.argv[1]
work = Work(Path(sys.argv[1]), {1: 1.0, 2: 0.5, 3: 0.25, 4: 2.0})
def fail(candidate):
    raise SystemExit(f"{candidate} is launched")
work.run = fail
print(work.remembered(), work.tune())
"""


def second_process(fake: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(fake)],
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_second_process_finds_it(it: Work, fake: Path) -> None:
    assert second_process(fake) == "2 2\n"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FAKE_CUDA_NAME", "another GPU"),
        ("FAKE_CUDA_MULTIPROCESSORS", "114"),
        ("FAKE_CUDA_VERSION", "13010"),
        ("PYKITTENS_TARGET", "sm_80"),
        ("PYKITTENS_NO_CACHE", "1"),
    ],
)
def test_under_other_conditions_it_is_measured_anew(
    it: Work, fake: Path, variable: str, value: str
) -> None:
    assert "is launched" in second_process(fake, **{variable: value})


def test_another_compiler_package_or_program_measures_anew(
    it: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (nvrtc, "version", (99, 0)),
        (cache, "package_version", "99.0"),
        (tuning_records, "_hash_of_programs", "another"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lambda *_, value=value: value)
            assert it.remembered() is None
        assert it.remembered() == 2


def test_another_list_of_candidates_measures_anew(it: Work) -> None:
    it.times[Rows(5)] = 0.1
    assert it.remembered() is None
    assert it.tune() == 5


def test_another_problem_measures_anew(it: Work) -> None:
    assert it.remembered({**KEY, "m": 4097}) is None
    assert it.remembered(dict(reversed(KEY.items()))) == 2  # the order says nothing


def test_the_programs_are_those_of_the_package_and_of_the_candidates_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, own = tmp_path / "package", tmp_path / "own.py"
    for folder in ("kernels", "targets/cuda", "cli"):
        (package / folder).mkdir(parents=True)
    for name in ("kernels/gemm.py", "targets/cuda/math.cuh", "cli/show.py"):
        (package / name).write_text("one")
    own.write_text("one")
    monkeypatch.setattr(tuning_records, "_PACKAGE", package)
    hashed = tuning_records._hash_of_programs.__wrapped__
    seen = [hashed((own,))]
    for path in (package / "kernels/gemm.py", package / "targets/cuda/math.cuh", own):
        path.write_text("two")
        seen.append(hashed((own,)))
    assert len(set(seen)) == 4
    (package / "cli/show.py").write_text("two")
    assert hashed((own,)) == seen[-1]


def test_candidates_of_a_class_in_no_file_are_measured_each_time(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = work({1: 1.0, 2: 0.5})
    monkeypatch.delattr(sys.modules[Rows.__module__], "__file__")
    files_of.cache_clear()
    assert it.tune() == it.tune() == 2
    assert len(it.checks) == 4
    assert it.remembered() is None
    assert files() == []
    files_of.cache_clear()


def test_a_file_that_is_gone_is_no_file() -> None:
    assert tuning_records._hash_of_programs.__wrapped__((Path("/no/such/file.py"),)) is None


def cut(text: str) -> str:
    return text[: len(text) // 2]


def empty(text: str) -> str:
    return ""


def a_list(text: str) -> str:
    return "[1, 2]"


def without_outcomes(text: str) -> str:
    return json.dumps({k: v for k, v in json.loads(text).items() if k != "outcomes"})


def one_that_was_not_checked(text: str) -> str:
    data = json.loads(text)
    for outcome in data["outcomes"]:
        outcome["checked"] = False
    return json.dumps(data)


def one_with_a_fault(text: str) -> str:
    data = json.loads(text)
    for outcome in data["outcomes"]:
        outcome["fault"] = "1 element is NaN"
    return json.dumps(data)


def one_that_is_no_candidate(text: str) -> str:
    return text.replace("Rows(rows=2)", "Rows(rows=5)")


def of_another_form(text: str) -> str:
    return json.dumps(json.loads(text) | {"more": 1})


def with_fields_of_other_types(text: str) -> str:
    return json.dumps(json.loads(text) | {"key": [], "conditions": {}, "date": 7, "seconds": "1"})


def with_milliseconds_of_another_type(text: str) -> str:
    data = json.loads(text)
    data["outcomes"][0]["milliseconds"] = {}
    return json.dumps(data)


def deep(text: str) -> str:
    return "[" * 100_000


def with_a_long_number(text: str) -> str:
    return f'{{"seconds": {"9" * 10_000}}}'


@pytest.mark.parametrize(
    "damage",
    [
        with_fields_of_other_types,
        with_milliseconds_of_another_type,
        deep,
        with_a_long_number,
        cut,
        empty,
        a_list,
        without_outcomes,
        one_that_was_not_checked,
        one_with_a_fault,
        one_that_is_no_candidate,
        of_another_form,
    ],
)
def test_a_damaged_file_is_measured_anew_and_mended(it: Work, damage: Callable[[str], str]) -> None:
    path = problem_file()
    path.write_text(damage(path.read_text()))
    forget()
    if damage is not one_that_is_no_candidate:
        assert list(tuning_records.records()) == []
    assert it.remembered() is None
    assert it.tune() == 2
    assert problem_file() == path
    forget()
    assert it.remembered() == 2


def test_bytes_that_are_no_text_are_measured_anew(it: Work) -> None:
    problem_file().write_bytes(b"\xff\xfe\x00")
    forget()
    assert it.remembered() is None
    assert list(tuning_records.records()) == []


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_pipe_in_the_folder_is_not_waited_for(it: Work) -> None:
    path = problem_file()
    path.unlink()
    os.mkfifo(path)
    os.mkfifo(path.with_name("other.json"))
    forget()
    assert list(tuning_records.records()) == []
    assert it.remembered() is None


def test_a_choice_that_is_found_wrong_later_is_not_returned(it: Work) -> None:
    it.wrong[Rows(2)] = "the last column is wrong"
    it.times[Rows(2)] = 0.1
    with pytest.warns(RuntimeWarning):
        assert it.tune({"m": 3}) == 1
    assert it.remembered() is None  # of the problem of before
    assert it.tune() == 1


def test_a_damaged_note_of_a_wrong_candidate_still_keeps_it_out(it: Work) -> None:
    (wrong,) = [p for p in files() if p != problem_file()]
    assert json.loads(wrong.read_text())["wrong"] == "1 element is NaN"
    wrong.write_text("")
    forget()
    it.launches.clear()
    assert it.tune({"m": 2}) == 2
    assert 3 not in it.launches


def test_a_folder_that_cannot_be_written_leaves_it_to_the_process(
    work: Makes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Below a file, so that it fails for an administrator too.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    it = work({1: 1.0, 2: 0.5})
    assert it.tune() == 2
    it.launches.clear()
    assert it.tune() == it.remembered() == 2
    assert it.launches == []


def test_without_a_cache_nothing_is_read_or_written_and_the_process_remembers(
    it: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKITTENS_NO_CACHE", "1")
    forget()
    before = {path: path.read_bytes() for path in files()}
    it.times[Rows(1)] = 0.1
    assert it.remembered() is None
    with pytest.warns(RuntimeWarning):
        assert it.tune() == 1
    assert it.remembered() == 1
    assert {path: path.read_bytes() for path in files()} == before


# Waits until another process tunes, and tunes the same problem.
SECOND_AT_ONCE = """
import sys, time
from pathlib import Path
from pykittens.runtime import driver
from tests.runtime.tuning import Work
driver._LIBRARY = sys.argv[1]
work = Work(Path(sys.argv[1]), {1: 1.0, 2: 0.5})
print("begins", flush=True)
chosen = work.tune()
print(chosen, len(work.launches), *[step.note for step in work.steps])
"""


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_a_process_waits_for_another_that_measures_the_same_problem(
    work: Makes, fake: Path
) -> None:
    it = work({1: 1.0, 2: 0.5})
    command = [sys.executable, "-c", SECOND_AT_ONCE, str(fake)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    begun: list[subprocess.Popen[str]] = []
    check = it.check

    def check_slowly(candidate: Rows) -> str | None:
        if not begun:
            pipe = subprocess.PIPE
            other = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
            begun.append(other)
            assert other.stdout is not None
            assert other.stdout.readline() == "begins\n"
            time.sleep(1)  # it waits
        return check(candidate)

    it.check = check_slowly  # type: ignore[method-assign]
    assert it.tune() == 2
    output, errors = begun[0].communicate(timeout=60)
    assert output == "2 0 another process measures it\n", errors
    assert [path.suffix for path in tuning_records.folder().rglob("*.*")] == [".json"]


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_a_lock_that_is_held_too_long_is_not_waited_for(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    it = work({1: 1.0, 2: 0.5})
    place = tuning_records.place("product", KEY, it.candidates, (), 0)
    assert place is not None
    lock = place.file.with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    monkeypatch.setattr(cache_folder, "PATIENCE", 0.1)
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert it.tune() == 2
        assert [step.stage for step in it.steps][:2] == ["waiting", "measured"]
        assert lock.exists()  # it belongs to another
    with open(lock, "w"):
        it.steps.clear()
        assert it.tune({"m": 2}) == 2  # a lock that is left over is free
        assert "waiting" not in [step.stage for step in it.steps]


def test_where_there_are_no_locks_it_is_measured(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: Any) -> None:
        raise OSError("no locks available")

    if cache_folder.fcntl is not None:
        monkeypatch.setattr(cache_folder.fcntl, "flock", flock)
        assert work({1: 1.0, 2: 0.5}).tune() == 2
    monkeypatch.setattr(cache_folder, "fcntl", None)
    assert work({1: 1.0, 2: 0.5}).tune({"m": 2}) == 2


# Tunes problems that other processes tune, read and damage meanwhile.
WORKER = """
import sys, warnings
from pathlib import Path
from pykittens.runtime import driver, tuning_records
from tests.runtime.tuning import Work
driver._LIBRARY = sys.argv[1]
worker = int(sys.argv[2])
work = Work(Path(sys.argv[1]), {1: 1.0, 2: 0.5, 3: 0.75})
for turn in range(20):
    key = {"m": turn % 3}
    tuning_records._found.clear()
    assert work.tune(key) == 2
    if turn % 4 == worker:
        tuning_records.place("product", key, work.candidates, (), 0).file.write_bytes(b"damaged")
for m in range(3):
    assert work.tune({"m": m}) == 2
"""


def test_processes_that_tune_at_once_all_choose_and_leave_whole_files(
    work: Makes, fake: Path
) -> None:
    environment: dict[str, Any] = os.environ | {"PYTHONPATH": str(ROOT)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(fake), str(worker)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker in range(3)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], errors
    names = {path.name for path in tuning_records.folder().rglob("*.*")}
    assert all(name.endswith(".json") for name in names)
    assert len(names) == 3
    assert driver.device(0).name == "a GPU"

"""Load, compute, store, finish: correct at any size and in any schedule, and the same program as written by hand."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.ir.nodes import For, walk
from pykittens.runtime import cubin, nvrtc
from pykittens.templates.lcsf import lcsf
from tests import tolerance, views
from tests.running import recorded
from tests.targets.clean import frame, spills
from tests.targets.compiling import matrix
from tests.templates import by_hand
from tests.templates.kernels import products, rms_norm, straight
from tests.tolerance import assert_within

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
ALIGNMENTS = [(True, True, True), (False, True, True), (True, True, False), (False, False, False)]


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def wide(*arrays):
    return [a.astype(np.float64) for a in arrays]


def assert_product(found, exact, magnitude, inner, dtype=F32):
    assert_within(found, exact, tolerance.product(dtype, exact, magnitude, inner))


# -- a product and a normalisation -------------------------------------------------------------


def check_matmul(module, A, B, C, whole):
    module.lcsf_matmul(A, B, C)
    exact, magnitude = module.reference(A, B), module.reference(np.abs(A), np.abs(B))
    assert_product(views.result_of(C, whole), exact, magnitude, A.shape[1], BF16)


@pytest.mark.parametrize("layout", [views.contiguous, views.sliced, views.wide])
@pytest.mark.parametrize("size", [(1, 1, 1), (127, 129, 65), (129, 300, 17), (300, 15, 400)])
def test_matmul_is_right_on_any_shape_and_layout(example, size, layout):
    m, n, k = size
    A, B = (views.filled(layout, normal(i, rows, k)) for i, rows in enumerate((m, n)))
    check_matmul(example("08_lcsf"), A, B, *layout((m, n), BF16))


@pytest.mark.parametrize("seed", range(6))
def test_matmul_is_the_same_under_any_schedule(example, monkeypatch, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    A, B = normal(0, 200, 300), normal(1, 300, 300)
    check_matmul(example("08_lcsf"), A, B, *views.contiguous((200, 300), BF16))


def test_a_task_without_steps_stores_what_setup_gave(example):
    C = np.full((130, 20), np.nan, BF16)
    example("08_lcsf").lcsf_matmul(np.empty((130, 0), BF16), np.empty((20, 0), BF16), C)
    assert (C == 0).all()


def test_without_tasks_nothing_happens(example):
    A, B, C = np.empty((0, 64), BF16), normal(0, 32, 64), np.empty((0, 32), BF16)
    example("08_lcsf").lcsf_matmul(A, B, C)


def check_rms_norm(kernel, x, y, whole):
    kernel(x, y)
    (exact,) = wide(x)
    exact = exact / np.sqrt((exact * exact).mean(axis=1, keepdims=True) + 1e-6)
    relative = 2 * (x.shape[1] + 8) * tolerance.unit(F32)
    bound = tolerance.rounding(x.dtype, exact) + relative * np.abs(exact)
    assert_within(views.result_of(y, whole), exact, bound)


@pytest.mark.parametrize("layout", [views.contiguous, views.sliced, views.wide])
@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (63, 17), (129, 127), (1000, 64)])
@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float16), F32], ids=str)
def test_rms_norm_is_right_on_any_shape_and_layout(dtype, shape, layout):
    x = views.filled(layout, normal(0, *shape).astype(dtype))
    for kernel in (rms_norm, by_hand.rms_norm):
        check_rms_norm(kernel, x, *layout(shape, dtype))


@pytest.mark.parametrize("seed", range(6))
def test_rms_norm_is_the_same_under_any_schedule(monkeypatch, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    x = normal(0, 1500, 100)
    check_rms_norm(rms_norm, x, *views.contiguous(x.shape, BF16))


def renamed(text):
    """The kernel of a text without comments and places, names replaced by the order of their first appearance."""
    kernel = text[text.index('extern "C"') :]
    lines = (line.split("//")[0].rstrip() for line in kernel.splitlines())
    code = "\n".join(line for line in lines if line and not line.startswith("#line"))
    seen: dict[str, str] = {}
    return re.sub(r"[A-Za-z_]\w*", lambda m: seen.setdefault(m[0], f"n{len(seen)}"), code)


@pytest.mark.parametrize("aligned", ALIGNMENTS, ids=str)
def test_matmul_is_the_text_written_by_hand(example, aligned):
    args = [matrix(256, 256, aligned=a) for a in aligned]
    text = example("06_matmul").matmul.source(*args)
    assert renamed(example("08_lcsf").lcsf_matmul.source(*args)) == renamed(text)


@pytest.mark.parametrize("width", [17, 64, 128])
@pytest.mark.parametrize("aligned", [True, False])
def test_rms_norm_is_the_text_written_by_hand(width, aligned):
    args = [matrix(300, width, aligned=aligned) for _ in range(2)]
    text = by_hand.rms_norm.source(*args)
    assert renamed(rms_norm.source(*args)) == renamed(text)


def instructions(sass):
    """The instructions of a disassembly, without what is around them."""
    found = re.findall(r"^\s+/\*[0-9a-f]+\*/.*$", sass, re.MULTILINE)
    assert found
    return found


@needs_compiler
@pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm is not installed")
def test_both_are_the_machine_code_written_by_hand(example):
    for ours, theirs, args in (
        (example("08_lcsf").lcsf_matmul, example("06_matmul").matmul, [matrix(256, 256)] * 3),
        (rms_norm, by_hand.rms_norm, [matrix(256, 128)] * 2),
    ):
        compiled, written = (k.compile(*(a.copy() for a in args)) for k in (ours, theirs))
        assert compiled.resources == written.resources
        assert compiled.resources.spills == ()
        assert compiled.resources.frame == 0
        assert instructions(compiled.sass) == instructions(written.sass)


# -- what the words mean -----------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("rows", "steps"), [(64, 1), (200, 3), (300, 4)])
def test_compute_may_put_out_at_every_step_and_finish_what_it_gathered(rows, steps, groups):
    A, B = normal(0, rows, 64 * steps), normal(1, 64 * steps, 64)
    each, total = np.full((rows, 64 * steps), np.nan, F32), np.full((rows, 64), np.nan, F32)
    products(A, B, each, total, groups=groups)
    a, b = wide(A, B)
    for k in range(steps):
        part = slice(64 * k, 64 * (k + 1))
        assert_product(each[:, part], a[:, part] @ b[part], abs(a[:, part]) @ abs(b[part]), 64)
    assert_product(total, a @ b, abs(a) @ abs(b), 64 * steps)


@needs_compiler
def test_an_output_a_step_compiles_without_spills():
    args = (matrix(128, 64), matrix(64, 64), matrix(128, 64, dtype=F32), matrix(128, 64, dtype=F32))
    compiled = products.compile(*args, groups=2)
    assert (spills(compiled), frame(compiled)) == ([], 0)


def test_the_steps_may_depend_on_the_task():
    @pk.kernel
    def lower(A, B, C):
        """C = tril(A) @ B by blocks of 64."""

        def load(task, step, input):
            pk.load_async(input.a, A[task[0], step])
            pk.load_async(input.b, B[step])

        lcsf(
            load=load,
            setup=lambda: pk.zeros(f32, 64, 64),
            compute=lambda input, state: pk.mma_AB(input.a, input.b, state),
            finish=lambda task, state: pk.store(C[task[0]], state),
            tasks=pk.persistent((pk.cdiv(A.rows, 64),)),
            steps=lambda task: task[0] + 1,
            inputs=pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64)),
            consumers=pk.consumers(1),
        )

    A, B = normal(0, 250, 250), normal(1, 250, 64)
    C = np.full((250, 64), np.nan, F32)
    lower(A, B, C)
    a, b = wide(A, B)
    a *= np.kron(np.tri(4), np.ones((64, 64)))[:250, :250]
    assert_product(C, a @ b, abs(a) @ abs(b), 250)


def test_a_state_may_be_a_tuple_and_the_functions_may_loop():
    @pk.function
    def repeated(t, n):
        for _ in pk.range(n):
            t = t + t
        return t

    @pk.kernel
    def kernel(A, total, count, n):
        def setup(task, worker):
            return pk.zeros(f32, 64, 64), task[0] * 0

        def load(task, step, input):
            pk.load_async(input, A[task[0], step])

        def compute(input, state):
            total, steps = state
            for _ in pk.range(n):  # the functions are rewritten with the kernel round them
                total = total + repeated(pk.mma_ABt(input, input), n)
            return total, steps + 1

        def finish(task, state):
            pk.store(total[task[0]], state[0])
            pk.store(count[task[0]], pk.zeros(f32, 64) + state[1].to(f32))

        lcsf(
            load=load, compute=compute, finish=finish, setup=setup, steps=pk.cdiv(A.cols, 64),
            tasks=pk.persistent((pk.cdiv(A.rows, 64),)),
            inputs=pk.pipeline(1, pk.st(bf16, 64, 64)), consumers=pk.consumers(1),
        )  # fmt: skip

    A = np.eye(64, 192, dtype=BF16)
    total, count = np.full((64, 64), np.nan, F32), np.full((1, 64), np.nan, F32)
    kernel(A, total, count, 3)
    assert np.array_equal(total, 3 * 8 * np.eye(64))
    assert (count == 3).all()


def test_a_single_step_is_no_loop():
    A, C = normal(0, 150, 64), np.full((150, 64), np.nan, F32)
    straight(A, C)
    (a,) = wide(A)
    for part in (slice(0, 64), slice(64, 128), slice(128, 150)):
        exact, magnitude = a[part] @ a[part].T, abs(a[part]) @ abs(a[part]).T
        assert_product(C[part, : exact.shape[1]], exact, magnitude, 64)
    assert not any(isinstance(n, For) for n in walk(recorded(straight, A, C).body))


def test_a_cluster_loads_with_multicast():
    @pk.kernel(cluster=2)
    def kernel(A, B, C):
        def load(task, step, input):
            row, col = task
            pk.load_async(input.a, A[row, step])
            pk.load_async(input.b, B[col, step], multicast=True)

        lcsf(
            load=load,
            setup=lambda: pk.zeros(f32, 64, 64),
            compute=lambda input, state: pk.mma_ABt(input.a, input.b, state),
            finish=lambda task, state: pk.store(C[task], state),
            tasks=pk.persistent(C.tiles(64, 64), cluster_axis=0),
            steps=pk.cdiv(A.cols, 64),
            inputs=pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64)),
            consumers=pk.consumers(1),
        )

    A, B, C = normal(0, 190, 100), normal(1, 100, 100), np.full((190, 100), np.nan, F32)
    kernel(A, B, C)
    a, b = wide(A, B)
    assert_product(C, a @ b.T, abs(a) @ abs(b).T, 100)


# -- what is refused ---------------------------------------------------------------------------


def refused(**changes):
    """The error of a kernel that is right but for some arguments of the template."""

    @pk.kernel
    def kernel(A, C):
        right = {
            "load": lambda task, input: pk.load_async(input, A[task[0]]),
            "compute": lambda input, state: pk.mma_ABt(input, input, state),
            "finish": lambda output, state: pk.store(output, state),
            "store": lambda task, output: pk.store_async(C[task[0]], output),
            "setup": lambda: pk.zeros(f32, 64, 64),
            "tasks": pk.persistent((pk.cdiv(A.rows, 64),)),
            "inputs": pk.pipeline(1, pk.st(bf16, 64, 64)),
            "outputs": pk.pipeline(1, pk.st(f32, 64, 64)),
            "consumers": pk.consumers(1),
        }
        lcsf(**{**right, **changes})

    A, C = np.ones((64, 64), BF16), np.full((64, 64), np.nan, F32)
    if not changes:
        kernel(A, C)
        assert (C == 64).all()
        return None
    with pytest.raises(pk.KernelError) as caught:
        kernel(A, C)
    assert np.isnan(C).all()
    return caught.value


def test_the_kernel_whose_faults_are_told_is_right_without_them():
    assert refused() is None


@pytest.mark.parametrize("name", ["load", "compute", "tasks", "inputs", "consumers"])
def test_what_is_missing_is_named_at_the_line_of_the_call(name):
    error = refused(**{name: None})
    assert error.message == f"lcsf: `{name}` is missing"
    assert error.loc.text.strip() == "lcsf(**{**right, **changes})"


def takes_a_stage(task, stage):
    return None


def takes_no_input(task):
    return None


def fills_at_every_step(input, output, state):
    return state


def forgets_the_state(input, state):
    pk.mma_ABt(input, input, state)


def starts_anew(input):
    return pk.mma_ABt(input, input)


def leaves_the_state(output):
    return None


def takes_the_step(task, step, output):
    return None


def loops(input, state):
    for _ in pk.range(3):
        state = state + 1
    return state


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"load": takes_a_stage}, "`load` has a parameter `stage`, which is no word"),
        ({"load": takes_no_input}, "`load` must take `input`, which it fills"),
        (
            {"setup": None},
            "`compute` takes a state, but there is no `setup` that returns the first",
        ),
        (
            {"compute": starts_anew, "setup": None, "steps": 2},
            "`finish` takes a state, but there is no `setup` for tasks without steps",
        ),
        (
            {"compute": starts_anew, "finish": leaves_the_state},
            "`setup` returns a state that neither `compute` nor `finish` takes",
        ),
        ({"compute": forgets_the_state}, "`compute` returns nothing"),
        (
            {"compute": starts_anew, "setup": None, "finish": leaves_the_state},
            "`compute` returns rt<f32, 64x64>, which no function takes",
        ),
        ({"compute": fills_at_every_step}, "`finish` and `compute` both take `output`"),
        ({"finish": None}, "no function fills `outputs`"),
        ({"outputs": None}, "`finish` needs `outputs`"),
        ({"outputs": None, "finish": None}, "`store` needs `outputs`"),
        ({"store": None}, "`store` is missing, which `outputs` need"),
        ({"store": takes_no_input}, "`store` must take `output`, which it stores"),
        ({"store": takes_the_step}, "`store` takes `step`, but `finish` fills the output once"),
        ({"load": 3}, "`load` must be a function, not 3"),
        ({"tasks": (3, 4)}, r"`tasks` must come from pk.persistent\(...\), not be \(3, 4\)"),
        ({"inputs": 3}, r"`inputs` must come from pk.pipeline\(...\), not be 3"),
        ({"outputs": 3}, r"`outputs` must come from pk.pipeline\(...\), not be 3"),
        ({"consumers": 2}, r"`consumers` must come from pk.consumers\(n\), .* not be 2"),
        ({"consumers": pk.producer()}, r"`consumers` must come from pk.consumers\(n\)"),
        ({"steps": 2.5}, "`stop` must be an int32"),
        ({"compute": loops}, "a run-time loop must be in a function that is rewritten"),
    ],
)
def test_what_does_not_fit_is_told(changes, message):
    assert re.search(message, refused(**changes).message)


def test_a_fault_of_a_function_is_told_at_the_function_with_the_words_it_may_take():
    error = refused(load=takes_a_stage)
    assert error.loc.text == "def takes_a_stage(task, stage):"
    assert error.help == "its parameters can be `task`, `step`, `input`"

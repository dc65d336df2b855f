"""An array of any library is described without a copy, and on the CPU viewed by NumPy in place."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.runtime import arrays, driver
from pykittens.runtime.arrays import Array, describe
from tests.runtime.calling import filled

try:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
needs_cuda_torch = pytest.mark.skipif(
    torch is None or not torch.cuda.is_available(), reason="PyTorch sees no GPU"
)

NUMPY_DTYPES = [
    (np.dtype(ml_dtypes.bfloat16), "bf16"),
    (np.dtype(np.float16), "f16"),
    (np.dtype(np.float32), "f32"),
    (np.dtype(np.int32), "int32"),
    (np.dtype(np.bool_), "bool"),
    (np.dtype(np.float64), "float64"),
    (np.dtype(np.int64), "int64"),
    (np.dtype(ml_dtypes.float8_e4m3fn), "e4m3"),
]
TORCH_DTYPES = ["bfloat16", "float16", "float32", "int32", "bool", "float64"]
TORCH_DTYPES += ["float8_e4m3fn", "float8_e5m2"]


class ThroughDLPack:
    """An array that shows DLPack alone, with or without versions of the protocol."""

    def __init__(self, array: Any, versioned: bool = True) -> None:
        self.array = array
        self.versioned = versioned

    def __dlpack__(self, **options: Any) -> object:
        if not self.versioned and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, ordinal = self.array.__dlpack_device__()
        return int(kind), int(ordinal)


class ThroughCuda:
    """An array that shows `__cuda_array_interface__` alone."""

    def __init__(self, **interface: object) -> None:
        self.interface = {"version": 3, **interface}

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return self.interface


def described(value: object) -> Array:
    array = describe(value)
    assert array is not None
    return array


def same_memory(view: np.ndarray[Any, Any], address: int) -> bool:
    return bool(view.__array_interface__["data"][0] == address)


@pytest.mark.parametrize("value", [3, 2.5, True, None, "text", [1, 2], np.float32(3), np.ndarray])
def test_what_is_no_array_is_none(value: object) -> None:
    assert describe(value) is None


@pytest.mark.parametrize(("dtype", "name"), NUMPY_DTYPES)
def test_a_numpy_array_is_described(dtype: np.dtype[Any], name: str) -> None:
    value = np.zeros((3, 64), dtype)
    array = described(value)
    assert (array.dtype, array.shape, array.strides) == (name, (3, 64), (64, 1))
    assert array.device == "cpu"
    assert array.writable
    assert array.itemsize == dtype.itemsize
    assert same_memory(value, array.address)
    assert array.numpy() is value


def test_a_numpy_view_has_its_own_address_and_strides() -> None:
    value = np.zeros((6, 8), np.float32)
    array = described(value[1:, ::2])
    assert (array.shape, array.strides) == ((5, 4), (8, 2))
    assert array.address == described(value).address + 32
    assert described(value.T).strides == (1, 8)
    assert described(value[:, ::-1]).strides == (8, -1)
    assert described(np.broadcast_to(value[0], (5, 8))).strides == (0, 1)


def test_a_read_only_array_is_not_writable() -> None:
    value = np.zeros(4, np.float32)
    value.flags.writeable = False
    assert not described(value).writable


def test_another_byte_order_is_not_taken_for_the_machines() -> None:
    assert described(np.zeros(4, ">f4")).dtype == ">f4"


def test_a_stride_that_is_no_whole_number_of_elements_is_refused() -> None:
    record = np.zeros(4, dtype=np.dtype([("a", np.float32), ("b", np.int8)]))
    with pytest.raises(
        ArgumentError, match="a stride of 5 bytes is not a multiple of the element size"
    ):
        describe(record["a"])


def test_an_array_is_told_by_its_dtype_shape_strides_and_place() -> None:
    array = described(np.zeros((3, 4), np.float32))
    assert str(array) == "f32 (3, 4), strides (4, 1), on cpu"
    array.device = ("cuda", 1)
    assert str(array).endswith("on cuda:1")
    with pytest.raises(ArgumentError, match="an array on the GPU has no NumPy view"):
        array.numpy()


@needs_torch
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_a_torch_tensor_is_described_and_viewed_in_place(name: str) -> None:
    value = torch.zeros(6, 8, dtype=getattr(torch, name))[1:, ::2]
    array = described(value)
    short = arrays._SHORT.get(name, name)
    assert (array.dtype, array.shape, array.strides) == (short, (5, 4), (8, 2))
    assert type(array.shape) is tuple
    assert (array.address, array.device) == (value.data_ptr(), "cpu")
    view = array.numpy()
    assert same_memory(view, value.data_ptr())
    assert view.dtype == arrays.numpy_dtype(short)
    view[2, 3] = 1
    assert value[2, 3].item() == 1
    assert view.sum() == 1


@needs_torch
def test_a_tensor_with_a_gradient_is_viewed_without_it() -> None:
    value = torch.nn.Parameter(torch.ones(3, 4))
    np.testing.assert_array_equal(described(value).numpy(), np.ones((3, 4), np.float32))


@needs_torch
def test_a_view_keeps_its_memory_alive() -> None:
    value = torch.full((1000,), 7.0)
    view = described(value).numpy()
    del value
    gc.collect()
    assert set(view) == {7.0}


@needs_torch
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 4), (1, 1)])
def test_small_and_empty_tensors_have_views(shape: tuple[int, ...]) -> None:
    array = described(torch.ones(shape, dtype=torch.bfloat16))
    assert array.shape == shape
    assert array.numpy().shape == shape


@needs_torch
@pytest.mark.filterwarnings("ignore")  # some of these are prototypes
def test_a_tensor_without_dense_memory_is_refused() -> None:
    x = torch.ones(4, 4)
    for kind, value in (
        ("sparse_coo", x.to_sparse()),
        ("sparse_csr", x.to_sparse_csr()),
        ("nested", torch.nested.nested_tensor([x, x])),
        ("nested", torch.nested.nested_tensor([x, x], layout=torch.jagged)),
    ):
        with pytest.raises(ArgumentError, match=f"this tensor is {kind}, and a kernel reads"):
            describe(value)
    with pytest.raises(ArgumentError, match="on the device meta"):
        describe(torch.ones(3, 4, device="meta"))
    with pytest.raises(ArgumentError, match="this tensor has no memory"):
        torch.vmap(lambda row: (describe(row), row)[1])(x)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_kernel_in_a_traced_function_is_refused_and_does_not_search_for_ever() -> None:
    x = torch.ones(64, 64)
    for trace in (
        lambda f: torch.jit.trace(f, (x,)),
        lambda f: make_fx(f, tracing_mode="fake")(x),
        lambda f: make_fx(f, tracing_mode="symbolic")(x),
    ):
        with pytest.raises(ArgumentError, match="extents are traced|has no memory") as caught:
            trace(lambda a: (filled(a, 1.0), a)[1])
        assert "see no kernel" in str(caught.value)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.bool_, np.float64])
def test_an_array_through_dlpack_is_described_and_viewed_in_place(
    dtype: type, versioned: bool
) -> None:
    value: Any = np.zeros((6, 8), dtype)[1:, ::2]
    array = described(ThroughDLPack(value, versioned))
    assert array.dtype == described(value).dtype
    assert (array.shape, array.strides) == ((5, 4), (8, 2))
    assert (array.address, array.device, array.writable) == (
        described(value).address,
        "cpu",
        True,
    )
    array.numpy()[2, 3] = 1
    assert value[2, 3] == 1


@needs_torch
@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", ["bfloat16", "bool"])
def test_dtypes_that_numpy_does_not_import_come_through_dlpack(name: str, versioned: bool) -> None:
    value = torch.zeros(3, 4, dtype=getattr(torch, name))
    array = described(ThroughDLPack(value, versioned))
    assert array.dtype == described(value).dtype
    array.numpy()[1, 2] = 1
    assert value[1, 2].item() == 1


def test_a_read_only_array_stays_so_through_dlpack() -> None:
    value = np.zeros(4, np.float32)
    value.flags.writeable = False
    try:
        value.__dlpack__(max_version=(1, 0))
    except (BufferError, TypeError):
        pytest.skip("this NumPy does not export read-only arrays")
    array = described(ThroughDLPack(value))
    assert not array.writable
    assert not array.numpy().flags.writeable


def test_an_array_that_does_not_share_its_memory_is_refused() -> None:
    class Private(ThroughDLPack):
        def __dlpack__(self, **options: Any) -> object:
            raise BufferError("kept for ourselves")

    with pytest.raises(ArgumentError, match="does not share its memory: kept for ourselves"):
        describe(Private(np.zeros(4)))


def test_memory_through_dlpack_lives_as_long_as_its_view() -> None:
    class Owner(np.ndarray[Any, Any]):
        pass

    value: Any = np.arange(1000, dtype=np.float32).view(Owner)
    watch = weakref.ref(value)
    view = described(ThroughDLPack(value)).numpy()
    del value
    gc.collect()
    assert watch() is not None
    np.testing.assert_array_equal(view, np.arange(1000))
    del view
    gc.collect()
    assert watch() is None


def test_an_array_on_a_device_that_is_no_gpu_of_ours_is_refused() -> None:
    class Elsewhere(ThroughDLPack):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 10, 0

    with pytest.raises(ArgumentError, match="neither the GPU nor the emulator can use"):
        describe(Elsewhere(np.zeros(4)))


def test_a_gpu_array_through_dlpack_is_asked_for_no_synchronisation() -> None:
    options: dict[str, Any] = {}

    class OnGpu(ThroughDLPack):
        def __dlpack__(self, **given: Any) -> object:
            options.update(given)
            return super().__dlpack__()  # memory of the CPU, under another name

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 3

    array = described(OnGpu(np.zeros(4, np.float32)))
    assert array.device == ("cuda", 3)
    assert options["stream"] == -1


def test_a_cuda_array_interface_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_of", lambda address: 2)
    array = described(ThroughCuda(shape=(3, 4), typestr="<f2", data=(4096, False), strides=(16, 2)))
    assert (array.dtype, array.shape, array.strides) == ("f16", (3, 4), (8, 1))
    assert (array.address, array.device, array.writable) == (4096, ("cuda", 2), True)
    packed = described(ThroughCuda(shape=(2, 3, 4), typestr="<i4", data=(4096, True)))
    assert (packed.dtype, packed.strides, packed.writable) == ("int32", (12, 4, 1), False)


@needs_cuda_torch
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_a_tensor_on_the_gpu_is_the_same_through_every_protocol(name: str) -> None:
    value = torch.zeros(6, 8, dtype=getattr(torch, name), device="cuda")[1:, ::2]
    direct = described(value)
    assert direct.device == ("cuda", value.device.index)
    assert direct.address == value.data_ptr()
    found = []
    if name != "float8_e4m3fn":  # not every PyTorch exports it
        found.append(described(ThroughDLPack(value)))
    if name not in (
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
    ):  # the other interface has no such dtypes
        found.append(described(ThroughCuda(**value.__cuda_array_interface__)))
    for array in found:
        assert (array.dtype, array.shape, array.strides, array.address, array.device) == (
            direct.dtype,
            direct.shape,
            direct.strides,
            direct.address,
            direct.device,
        )


@needs_torch
def test_a_view_that_negates_its_memory_is_refused() -> None:
    value = torch.complex(torch.zeros(3), torch.ones(3)).conj().imag
    with pytest.raises(ArgumentError, match="a negated view") as error:
        describe(value)
    assert error.value.help == "pass x.resolve_neg()"
    assert described(value.resolve_neg()).numpy().tolist() == [-1.0] * 3

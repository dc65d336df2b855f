"""Checkpoints: read, refused, written and read again; and random weights."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e4m3fn

from pykittens.models import checkpoint
from pykittens.models.config import NAMED, Config
from tests.refusals import refused

safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")
from safetensors.numpy import save_file  # noqa: E402

CONFIG = Config(
    hidden=32,
    layers=2,
    heads=4,
    key_heads=2,
    head=16,
    inner=48,
    vocabulary=40,
    positions=64,
    ends=(3, 2),
)
NORM, TABLE = "model.norm.weight", "model.embed_tokens.weight"
UP = "model.layers.1.mlp.up_proj.weight"
FILE, INDEX = checkpoint.FILE, checkpoint.INDEX


@pytest.fixture(params=["numpy", "torch"])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With PyTorch, or as if it were not installed."""
    if request.param == "numpy":
        monkeypatch.setitem(sys.modules, "torch", None)
    else:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    return request.param


def numbers(x: Any) -> np.ndarray:
    """A weight in float64, after a look at its kind."""
    axes = len(x.shape)
    assert str(x.dtype).removeprefix("torch.") == ("bfloat16" if axes == 2 else "float32")
    return np.asarray(x.astype(np.float64) if isinstance(x, np.ndarray) else x.double())


def arrays(config: Config = CONFIG, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Values that bf16 does not hold, so that they are rounded."""
    rng = np.random.default_rng(5)
    return {n: rng.standard_normal(s).astype(dtype) for n, s in config.shapes().items()}


def saved(folder: Path, tensors: dict[str, Any], name: str = FILE) -> Path:
    save_file(tensors, folder / name)
    return folder


def sharded(folder: Path, tensors: dict[str, Any]) -> dict[str, str]:
    """The tensors in three shards, and which tensor is in which; the index is written, too."""
    names = {name: f"model-{n % 3 + 1:05}-of-00003.safetensors" for n, name in enumerate(tensors)}
    for file in set(names.values()):
        saved(folder, {n: x for n, x in tensors.items() if names[n] == file}, file)
    indexed(folder, names)
    return names


def indexed(folder: Path, names: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


def check(found: dict[str, Any], tensors: dict[str, np.ndarray], framework: str) -> None:
    assert list(found) == list(CONFIG.shapes())
    for name, x in found.items():
        assert isinstance(x, np.ndarray) == (framework == "numpy")
        wanted = tensors[name].astype(bfloat16) if x.ndim == 2 else tensors[name]
        assert (numbers(x) == wanted.astype(np.float64)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16], ids=["f32", "f16", "bf16"])
def test_a_checkpoint_is_read_and_rounded(tmp_path: Path, framework: str, dtype: Any) -> None:
    tensors = arrays(dtype=dtype)
    check(checkpoint.read(saved(tmp_path, tensors), CONFIG, "cpu"), tensors, framework)


def test_shards_are_read(tmp_path: Path, framework: str) -> None:
    tensors = arrays()
    sharded(tmp_path, tensors)
    check(checkpoint.read(str(tmp_path), CONFIG, "cpu"), tensors, framework)


def test_links_out_of_the_folder_are_read(tmp_path: Path) -> None:
    """The cache of Hugging Face keeps files elsewhere."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    saved(tmp_path / "blobs", arrays(), "f00")
    try:
        (tmp_path / "snapshot" / FILE).symlink_to("../blobs/f00")
    except OSError:
        pytest.skip("links cannot be made here")
    assert len(checkpoint.read(tmp_path / "snapshot", CONFIG, "cpu")) == len(CONFIG.shapes())


def test_weights_do_not_change_with_their_file(tmp_path: Path, framework: str) -> None:
    tensors = arrays(dtype=bfloat16)
    found = checkpoint.read(saved(tmp_path, tensors), CONFIG, "cpu")
    (tmp_path / FILE).write_bytes(bytes((tmp_path / FILE).stat().st_size))
    check(found, tensors, framework)


def test_the_rounding_is_to_the_nearest(tmp_path: Path, framework: str) -> None:
    tensors = arrays()
    # Above 1, bf16 has steps of 2^-7: below the middle of a step, the middle to even both ways, above it.
    tensors[TABLE][0, :4] = 1 + np.array([2**-8 - 2**-20, 2**-8, 3 * 2**-8, 2**-8 + 2**-20])
    found = checkpoint.read(saved(tmp_path, tensors), CONFIG, "cpu")
    assert numbers(found[TABLE])[0, :4].tolist() == [1, 1, 1 + 2**-6, 1 + 2**-7]


def test_a_tied_model_may_have_an_output_matrix(tmp_path: Path) -> None:
    tied = dataclasses.replace(CONFIG, tied=True)
    found = checkpoint.read(saved(tmp_path, arrays()), tied, "cpu")
    assert "lm_head.weight" not in found


def test_frequencies_of_old_files_are_ignored(tmp_path: Path) -> None:
    more = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float64)}
    found = checkpoint.read(saved(tmp_path, arrays() | more), CONFIG, "cpu")
    assert list(found) == list(CONFIG.shapes())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({NORM: None}, f"{FILE}: the tensor `{NORM}` is missing\n"),
        ({NORM: None, UP: None}, f"{FILE}: the tensors `{UP}` and 1 more are missing"),
        ({"x": np.ones(3)}, f"{FILE}: the model of the configuration has no tensor `x`"),
        (
            {NORM: np.ones(31)},
            rf"{FILE}: the tensor `{NORM}` must have the shape \(32,\), not \(31,\)",
        ),
        (
            {UP: np.ones((32, 48))},
            rf"{FILE}: the tensor `{UP}` must have .* \(48, 32\), not \(32, 48\)",
        ),
        ({NORM: np.ones((32, 1))}, rf"`{NORM}` must have the shape \(32,\), not \(32, 1\)"),
        (
            {UP: np.ones((48, 32), np.int8)},
            f"{FILE}: the tensor `{UP}` must be BF16, F16, F32, not I8",
        ),
        ({UP: np.ones((48, 32))}, "must be BF16, F16, F32, not F64\nquantised weights"),
        ({UP: np.ones((48, 32), float8_e4m3fn)}, "must be BF16, F16, F32, not F8_E4M3"),
    ],
)
def test_tensors_are_those_of_the_model(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    tensors = {n: x for n, x in (arrays() | change).items() if x is not None}
    with refused(message):
        checkpoint.read(saved(tmp_path, tensors), CONFIG, "cpu")


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def with_offsets(data: bytes, first: int, last: int) -> bytes:
    """The file, whose last tensor begins and ends elsewhere."""
    header, body = header_of(data)
    header[NORM]["data_offsets"] = [first, last]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[:100],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: (10**15).to_bytes(8, "little") + data[8:],
        lambda data: data[:8] + b"[" + data[9:],
        lambda data: with_offsets(data, 0, 128),
        lambda data: with_offsets(data, 10**9, 10**9 + 128),
        lambda data: with_offsets(data, 128, 0),
        lambda data: data.replace(b'"F32"', b'"F99"'),
    ],
    ids=[
        "empty",
        "five",
        "header",
        "cut",
        "longer",
        "huge",
        "json",
        "same",
        "past",
        "back",
        "type",
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, damage: Any, framework: str) -> None:
    data = (saved(tmp_path, arrays()) / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(damage(data))
    with refused(f"{FILE} is cut short or damaged: .*\ncopy or download the file again"):
        checkpoint.read(tmp_path, CONFIG, "cpu")


def test_folders_without_a_checkpoint_are_refused(tmp_path: Path) -> None:
    with refused("there is no folder .*nowhere\na model of Hugging Face is downloaded by"):
        checkpoint.read(tmp_path / "nowhere", CONFIG)
    with refused(f"has neither {FILE} nor {INDEX}\n$"):
        checkpoint.read(tmp_path, CONFIG)
    (tmp_path / "pytorch_model.bin").write_bytes(b"never read")
    with refused(r"only pickled weights: pytorch_model\.bin\npickled .*NEW_FOLDER"):
        checkpoint.read(tmp_path, CONFIG)
    (tmp_path / FILE).mkdir()
    with refused(f"{FILE} is cut short or damaged"):
        checkpoint.read(tmp_path, CONFIG)


@pytest.mark.parametrize(
    "shard", ["../model.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "C:x", 3, None]
)
def test_an_index_names_files_of_its_folder(tmp_path: Path, shard: object) -> None:
    saved(tmp_path, arrays())
    (tmp_path / "model").mkdir()
    indexed(tmp_path / "model", {NORM: shard})
    with refused(f"{INDEX}: the file of the tensor `{NORM}` must be the name of one in the folder"):
        checkpoint.read(tmp_path / "model", CONFIG)


def test_an_index_has_files_and_tensors(tmp_path: Path) -> None:
    names = sharded(tmp_path, arrays())
    indexed(tmp_path, names | {UP: "other.safetensors"})
    with refused(rf"{INDEX}: the file other\.safetensors of the tensor `{UP}` is missing"):
        checkpoint.read(tmp_path, CONFIG)
    for wrong in ({}, [], None):
        indexed(tmp_path, wrong)
        with refused(f"{INDEX} must have a `weight_map` from tensors to files"):
            checkpoint.read(tmp_path, CONFIG)
    (tmp_path / INDEX).write_text("{")
    with refused(f"{INDEX} cannot be read as JSON"):
        checkpoint.read(tmp_path, CONFIG)


def test_tensors_of_shards_are_complete_and_there_once(tmp_path: Path) -> None:
    tensors = arrays()
    names = sharded(tmp_path, tensors)
    first, second, _ = sorted(set(names.values()))
    own = {n: x for n, x in tensors.items() if names[n] == second}
    saved(tmp_path, own | {TABLE: tensors[TABLE]}, second)
    with refused(f"the tensor `{TABLE}` is in .*{first} and in .*{second}"):
        checkpoint.read(tmp_path, CONFIG)
    gone = own.popitem()[0]
    saved(tmp_path, own, second)
    with refused(f"{INDEX}: the tensor `{gone}` is missing"):
        checkpoint.read(tmp_path, CONFIG)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        dataclasses.replace(CONFIG, tied=True, biases=True),
        dataclasses.replace(CONFIG, tied=True, head_norms=True),
    ],
    ids=["llama", "qwen2", "qwen3"],
)
def test_what_is_written_is_read_again(tmp_path: Path, framework: str, config: Config) -> None:
    weights = checkpoint.random_weights(config, 3, "cpu")
    folder = tmp_path / "new" / "folder"
    checkpoint.write(folder, config, weights)
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", FILE]
    assert Config.read(folder) == config
    again = checkpoint.read(folder, config, "cpu")
    for name, x in weights.items():
        assert type(x) is type(again[name])
        assert (numbers(x) == numbers(again[name])).all()
    checkpoint.write(folder, config, again)  # over the file that it comes from


def test_weights_may_be_views_when_they_are_written(tmp_path: Path, framework: str) -> None:
    weights = checkpoint.random_weights(CONFIG, 3, "cpu")
    moved = {n: x.swapaxes(0, 1) * 1 if x.ndim == 2 else x for n, x in weights.items()}
    views = {n: x.swapaxes(0, 1) if x.ndim == 2 else x for n, x in moved.items()}
    checkpoint.write(tmp_path, CONFIG, views)
    again = checkpoint.read(tmp_path, CONFIG, "cpu")
    assert all((numbers(x) == numbers(again[n])).all() for n, x in weights.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({NORM: None}, f"weights: the tensor `{NORM}` is missing"),
        ({"x": np.ones(3)}, "weights: the model of the configuration has no tensor `x`"),
        ({NORM: np.ones(31)}, rf"weights: the tensor `{NORM}` must have the shape \(32,\)"),
        ({NORM: np.ones(32)}, f"`{NORM}` must be float32, not float64"),
        ({UP: np.ones((48, 32), np.float32)}, f"`{UP}` must be bfloat16, not float32"),
        ({UP: 3}, rf"weights: the tensor `{UP}` must have the shape \(48, 32\), not \(\)"),
    ],
)
def test_only_weights_of_the_model_are_written(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    weights = checkpoint.random_weights(CONFIG) | change
    with refused(message):
        checkpoint.write(
            tmp_path / "x", CONFIG, {n: x for n, x in weights.items() if x is not None}
        )
    with refused("has both biases and head norms"):
        both = dataclasses.replace(CONFIG, biases=True, head_norms=True)
        checkpoint.write(tmp_path / "x", both, checkpoint.random_weights(both))
    assert not (tmp_path / "x").exists()


def normalised(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def logits(config: Config, weights: dict[str, np.ndarray], token: int) -> np.ndarray:
    """The logits at the first position, where attention takes the values as they are, in float64."""
    x = weights[TABLE][token]
    for n in range(config.layers):
        w = {
            k.split(".", 3)[3]: v for k, v in weights.items() if k.startswith(f"model.layers.{n}.")
        }
        y = normalised(x, w["input_layernorm.weight"], config.eps)
        v = w["self_attn.v_proj.weight"] @ y + w.get("self_attn.v_proj.bias", 0)
        shared = config.heads // config.key_heads
        heads = np.repeat(v.reshape(config.key_heads, config.head), shared, axis=0)
        x = x + w["self_attn.o_proj.weight"] @ heads.reshape(-1)
        y = normalised(x, w["post_attention_layernorm.weight"], config.eps)
        gate = w["mlp.gate_proj.weight"] @ y
        gate = gate / (1 + np.exp(-gate)) * (w["mlp.up_proj.weight"] @ y)
        x = x + w["mlp.down_proj.weight"] @ gate
    last = weights.get("lm_head.weight", weights[TABLE])
    return last @ normalised(x, weights[NORM], config.eps)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_random_weights_give_logits_of_a_deviation_between_2_and_4(
    framework: str, tied: bool
) -> None:
    config = dataclasses.replace(NAMED["tiny"], tied=tied, biases=True)
    found = checkpoint.random_weights(config, seed=1, device="cpu")
    assert {n: tuple(x.shape) for n, x in found.items()} == config.shapes()
    weights = {n: numbers(x) for n, x in found.items()}
    for token in (0, 7, 299):
        assert 2 < logits(config, weights, token).std() < 4
    gains = [x for n, x in weights.items() if n.endswith("norm.weight")]
    assert all(0.05 < x.std() < 0.15 and abs(x.mean() - 1) < 0.05 for x in gains)


def test_a_seed_gives_the_same_weights(framework: str) -> None:
    first, again, other = (checkpoint.random_weights(CONFIG, seed, "cpu") for seed in (1, 1, 2))
    assert all((numbers(first[n]) == numbers(again[n])).all() for n in first)
    assert all((numbers(first[n]) != numbers(other[n])).any() for n in first)
    with refused("`seed` must be an int of at least 0, not -1"):
        checkpoint.random_weights(CONFIG, -1)


def test_devices_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert checkpoint.placed(torch.device("cpu")) == "cpu"
    for device in ("gpu", 1.5, object()):
        with refused("`device` must be a device of PyTorch, not "):
            checkpoint.placed(device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert checkpoint.placed() == "cpu"
    with refused("`device` of cuda is missing: PyTorch finds 0 GPUs"):
        checkpoint.placed("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert checkpoint.placed() == checkpoint.placed("cuda") == "cuda:1"
    assert checkpoint.placed("cuda:0") == "cuda:0"
    with refused("`device` of cuda:2 is missing: PyTorch finds 2 GPUs"):
        checkpoint.placed("cuda:2")


def test_a_device_needs_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert checkpoint.placed() is None
    assert checkpoint.placed("cpu") is None
    with refused("`device` of cuda needs PyTorch, which is not installed\npip install torch"):
        checkpoint.random_weights(CONFIG, device="cuda")


def test_files_need_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = checkpoint.random_weights(CONFIG)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for call in (
        lambda: checkpoint.read(tmp_path, CONFIG),
        lambda: checkpoint.write(tmp_path, CONFIG, weights),
    ):
        with refused("need the package safetensors, which is not .*\npip install safetensors"):
            call()

"""Checkpoints: the weights of a model in files of safetensors, checked, read and written; and random weights.

Weights are a dict of tensors of PyTorch, or of arrays of NumPy if PyTorch is missing, by the names of
`Config.shapes`: matrices in bf16, vectors in float32.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_count
from pykittens.mega.isa.packing import check_array
from pykittens.models.config import Config
from pykittens.models.config_json import check_folder, read_json

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = ("BF16", "F16", "F32")
_CONVERT = (
    "pickled weights can run code when they are read; of a model that you trust, "
    "`AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)` of transformers makes safetensors"
)


def read(folder: str | os.PathLike[str], config: Config, device: Any = None) -> dict[str, Any]:
    """The weights of the checkpoint in a folder, whose files are checked before any weight is read.

    device: of PyTorch; the current GPU if none is given and there is one, otherwise the CPU.
    """
    safetensors = _safetensors()
    place = placed(device)
    names = _tensors(safetensors, Path(folder), config)
    framework, where = ("np", "cpu") if place is None else ("pt", place)
    found: dict[str, Any] = {}
    for file, own in names.items():
        with safetensors.safe_open(file, framework, device=where) as opened:
            found |= {name: _stored(opened.get_tensor(name)) for name in own}
    return {name: found[name] for name in config.shapes()}


def write(folder: str | os.PathLike[str], config: Config, weights: Mapping[str, Any]) -> None:
    """Write a checkpoint, config.json and model.safetensors, to a folder, which is made if it is missing."""
    _safetensors()
    from safetensors.numpy import save_file

    shapes = config.shapes()
    for name, x in weights.items():
        _check_place("weights", name, tuple(getattr(x, "shape", ())), shapes)
        check_array(name, x, ["bfloat16" if len(shapes[name]) > 1 else "float32"], None)
    _check_complete("weights", weights, shapes)
    text = json.dumps(config.as_dict(), indent=2)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    # A file takes the place of another when it is complete: the weights may be views of the other.
    part = path / f"{FILE}.part"
    save_file({name: _array(x) for name, x in weights.items()}, part, {"format": "pt"})
    part.replace(path / FILE)
    (path / "config.json").write_text(text + "\n", encoding="utf-8")


def random_weights(config: Config, seed: int = 0, device: Any = None) -> dict[str, Any]:
    """Random weights, with which vectors keep their size from layer to layer and logits have a deviation about 3.

    Elements of a matrix are normal with variance 1 / columns. Those of the output matrix, which is the embedding of a
    tied model, have variance 9 / columns: a logit is the product of a row with a vector whose mean square is about 1.
    Gains are normal about 1, biases about 0, with a deviation of 0.1. The numbers of a seed differ between devices.
    """
    check_count("seed", seed, 0)
    normal = _normal(seed, placed(device))
    last = "model.embed_tokens.weight" if config.tied else "lm_head.weight"
    found = {}
    for name, shape in config.shapes().items():
        x = normal(shape)
        x *= 0.1 if len(shape) == 1 else (3.0 if name == last else 1.0) / shape[1] ** 0.5
        if name.endswith("norm.weight"):
            x += 1.0
        found[name] = _stored(x)
    return found


def _normal(seed: int, place: str | None) -> Callable[[tuple[int, ...]], Any]:
    """A function that draws normal numbers of a shape, in float32."""
    if place is None:
        rng = np.random.default_rng(seed)
        return lambda shape: rng.standard_normal(shape, np.float32)
    import torch

    generator = torch.Generator(place).manual_seed(seed)
    return lambda shape: torch.randn(shape, generator=generator, device=place, dtype=torch.float32)


def placed(device: Any = None) -> str | None:
    """The name of a device of PyTorch, by default the current GPU or the CPU; None for arrays of NumPy, without it."""
    try:
        import torch
    except ImportError:
        if device is None or str(device) == "cpu":
            return None
        raise ArgumentError(
            f"`device` of {device} needs PyTorch, which is not installed", help="pip install torch"
        ) from None
    gpu = torch.cuda.is_available()
    try:
        found = torch.device(("cuda" if gpu else "cpu") if device is None else device)
    except (RuntimeError, TypeError):
        raise ArgumentError(f"`device` must be a device of PyTorch, not {device!r}") from None
    if found.type != "cuda":
        return str(found)
    count = torch.cuda.device_count() if gpu else 0
    index = found.index if found.index is not None or not gpu else torch.cuda.current_device()
    if not gpu or index >= count:
        raise ArgumentError(f"`device` of {device} is missing: PyTorch finds {count} GPUs")
    return f"cuda:{index}"


def _safetensors() -> ModuleType:
    try:
        import safetensors
    except ImportError:
        raise ArgumentError(
            "checkpoints need the package safetensors, which is not installed",
            help="pip install safetensors",
        ) from None
    return safetensors


def _stored(x: Any) -> Any:
    """A tensor of its own, in bf16 if it is a matrix, otherwise in float32; files may change afterwards."""
    if isinstance(x, np.ndarray):
        return x.astype(bfloat16 if x.ndim > 1 else np.float32)
    import torch

    dtype = torch.bfloat16 if x.ndim > 1 else torch.float32
    return x.to(dtype, copy=x.device.type == "cpu")


def _array(x: Any) -> np.ndarray:
    """The tensor as an array of NumPy without gaps, which takes its memory if it can."""
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x)
    import torch

    x = x.detach().cpu().contiguous()
    made: np.ndarray = x.numpy() if x.ndim == 1 else x.view(torch.int16).numpy().view(bfloat16)
    return made


def _files(folder: Path) -> list[Path]:
    """The files of a checkpoint: one, or those of its index."""
    check_folder(folder)
    if (folder / FILE).exists():
        return [folder / FILE]
    index = folder / INDEX
    if not index.exists():
        pickled = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
        only = f", only pickled weights: {pickled[0]}" if pickled else ""
        raise ArgumentError(
            f"{folder} has neither {FILE} nor {INDEX}{only}", help=_CONVERT if pickled else None
        )
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ArgumentError(f"{index} must have a `weight_map` from tensors to files")
    for name, shard in shards.items():
        # A link in the folder may lead out of it, as those of the cache of Hugging Face do; a name may not.
        if not isinstance(shard, str) or not shard.strip(".") or set(shard) & set("/\\:\0"):
            raise ArgumentError(
                f"{index}: the file of the tensor `{name}` must be the name of one in the folder, not {shard!r}"
            )
        if not (folder / shard).is_file():
            raise ArgumentError(f"{index}: the file {shard} of the tensor `{name}` is missing")
    return [folder / shard for shard in sorted(set(shards.values()))]


def _tensors(safetensors: ModuleType, folder: Path, config: Config) -> dict[Path, list[str]]:
    """The tensors of the model in each file, which all are there, once, with their shapes and dtypes."""
    files, shapes = _files(folder), config.shapes()
    owners: dict[str, Path] = {}
    for file in files:
        for name, (dtype, shape) in _header(safetensors, file).items():
            # A tied model may have its output matrix stored, too; old files have the frequencies of the angles.
            if name.endswith(".rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight"):
                continue
            _check_place(file, name, shape, shapes)
            if dtype not in _DTYPES:
                raise ArgumentError(
                    f"{file}: the tensor `{name}` must be {', '.join(_DTYPES)}, not {dtype}",
                    help="quantised weights are not supported; take the checkpoint that was quantised",
                )
            if name in owners:
                raise ArgumentError(f"the tensor `{name}` is in {owners[name]} and in {file}")
            owners[name] = file
    _check_complete(files[0] if len(files) == 1 else folder / INDEX, owners, shapes)
    return {file: [name for name, owner in owners.items() if owner == file] for file in files}


def _header(safetensors: ModuleType, file: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The dtypes and shapes of the tensors of a file."""
    try:
        with safetensors.safe_open(file, "np") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {name: (x.get_dtype(), tuple(x.get_shape())) for name, x in slices.items()}
    except (OSError, safetensors.SafetensorError) as fault:
        raise ArgumentError(
            f"{file} is cut short or damaged: {fault}", help="copy or download the file again"
        ) from None


def _check_place(
    where: object, name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise unless the model has a tensor of this name and shape."""
    if name not in shapes:
        raise ArgumentError(f"{where}: the model of the configuration has no tensor `{name}`")
    if shape != shapes[name]:
        raise ArgumentError(
            f"{where}: the tensor `{name}` must have the shape {shapes[name]}, not {shape}"
        )


def _check_complete(
    where: object, names: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    missing = [name for name in shapes if name not in names]
    if len(missing) == 1:
        raise ArgumentError(f"{where}: the tensor `{missing[0]}` is missing")
    if missing:
        more = f"`{missing[0]}` and {len(missing) - 1} more"
        raise ArgumentError(f"{where}: the tensors {more} are missing")

"""A compiled kernel as C: a header, and a source that holds the machine code and launches it without Python.

The launch checks what a call from Python checks (`arguments.py`) and works out what a plan holds (`launch.py`). What it
is made of stands in `aot.c`, a function a section; those that a kernel needs are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pykittens import settings
from pykittens.ir.nodes import Call, Kernel, Require, Tasks, waits_for_flags, walk, written
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, Scalar, TileRef, Value
from pykittens.runtime.c_expressions import ATOM, HostNumbers, shown
from pykittens.runtime.c_text import (
    INDENT,
    WIDTH,
    c_string,
    code_only,
    comment,
    free_name,
    needed,
    sections,
    template,
    wrapped,
)
from pykittens.runtime.tensor_map import MAP_DTYPE
from pykittens.targets.names import RESERVED
from pykittens.targets.source import Source

INCLUDES = "dlfcn.h math.h stdalign.h stdarg.h stddef.h stdio.h stdlib.h string.h".split()
# Names of C, of its headers and of the launch function, besides those of C++ and CUDA.
_TAKEN = (
    "restrict stdin stdout stderr errno EOF linux unix kernel stream code grid_extents grid_points grid_blocks "
    "parameters message driver term tensor_map add_term sums_to last_byte failed find load_module open_driver"
).split()
_BYTES_A_LINE = 28
# What the driver calls the dtypes of tensor maps, by its numbers for them.
_MAP_DTYPES = "UINT8 UINT16 UINT32 INT32 UINT64 INT64 FLOAT16 FLOAT32 FLOAT64 BFLOAT16".split()


def c_files(kernel: Kernel, source: Source, arch: str, cubin: bytes) -> dict[str, str]:
    """The header and the launcher of a lowered kernel, by file name."""
    return CLauncher(kernel, source, arch, cubin).files()


class CLauncher:
    """Writes the C of one kernel."""

    def __init__(self, kernel: Kernel, source: Source, arch: str, cubin: bytes) -> None:
        self.kernel, self.source, self.arch, self.cubin = kernel, source, arch, cubin
        self.taken = {*RESERVED, *_TAKEN, *sections(), source.name}
        self.names = {p.name: free_name(p.name, self.taken) for p in kernel.params}
        self.tensors = {p.name: p for p in kernel.params if isinstance(p, Global)}
        self.numbers = HostNumbers(kernel, self.names, self.taken)
        self.outputs = written(kernel)
        self.persistent = isinstance(kernel.launch, Tasks)

    def files(self) -> dict[str, str]:
        name = self.source.name
        return {f"{name}.h": self.header(), f"{name}.c": self.program()}

    # -- the two texts -------------------------------------------------------------------------

    def header(self) -> str:
        doc = self.kernel.doc.splitlines()
        return self._filled(
            template("aot.h"),
            TITLE="\n".join(comment([self.source.name, *doc]))[3:],
            ARGUMENTS="\n".join(comment(self._described())),
            SIGNATURE=self._signature(),
        )

    def program(self) -> str:
        name, launch = self.source.name, self._launch()
        title = f"{name} for {self.arch}: the launch of {name}.h, and the machine code behind it."
        parts = "\n".join(part.strip("\n") + "\n" for part in needed("\n".join(launch)))
        return "\n".join(
            [
                *comment([title]),
                f'#include "{name}.h"',
                "",
                *(f"#include <{header}>" for header in INCLUDES),
                "",
                "#ifndef __cplusplus",
                "#define thread_local _Thread_local",
                "#endif",
                "",
                self._filled(parts, CUBIN_BYTES=str(len(self.cubin))),
                *launch,
                "",
                *self._bytes(),
                "",
            ]
        )

    def _filled(self, text: str, **values: str) -> str:
        values |= {
            "NAME": self.source.name,
            "ARCH": self.arch,
            "THREADS": str(self.source.threads),
            "SHARED": str(self.source.shared_bytes),
            "OVERLAPS": str(int(self.source.overlaps and settings.overlap())),
        }
        return re.sub(r"@([A-Z_]+)@", lambda found: values[found[1]], text)

    def _bytes(self) -> Iterator[str]:
        name = f"{self.source.name}_cubin"
        yield from comment([f"{self.source.name}.{self.arch}.cubin"])
        yield f"alignas(64) const unsigned char {name}[{len(self.cubin)}] = {{"
        for at in range(0, len(self.cubin), _BYTES_A_LINE):
            yield ",".join(map(str, self.cubin[at : at + _BYTES_A_LINE])) + ","
        yield "};"

    # -- the signature -------------------------------------------------------------------------

    def _described(self) -> Iterator[str]:
        """A line an argument: what the kernel was compiled for."""
        for param in self.kernel.params:
            if isinstance(param, Global):
                parts = [f"{param.dtype}, rank {param.type.rank}"]
                parts += ["written"] * (param.name in self.outputs)
                parts += ["base and strides multiples of 16 bytes"] * param.type.aligned
                parts += ["rows, too"] * self._whole_rows(param)
                yield f"{self.names[param.name]}: {', '.join(parts)}"
            else:
                yield f"{self.names[param.name]}: {param.dtype}"
        for value, constant in dict.fromkeys(self.kernel.statics):
            yield f"{shown(HostNumbers(self.kernel, self.names, set())(value).text)}: {constant}"
        for name, constant in self.kernel.constants.items():
            yield f"{name}: {' '.join(repr(constant).split())}, a constant of the kernel"

    def _signature(self) -> str:
        start = f"int {self.source.name}_launch("
        parameters = [f"const {self.source.name}_kernel *kernel", "struct CUstream_st *stream"]
        parameters += [f"{_c_parameter(p)}{self.names[p.name]}" for p in self.kernel.params]
        line = f"{start}{', '.join(parameters)})"
        if len(line) <= WIDTH:
            return line
        return start + (",\n" + " " * len(start)).join(parameters) + ")"

    # -- the launch ----------------------------------------------------------------------------

    def _launch(self) -> list[str]:
        body = [
            "int code;",
            *self._check_arguments(),
            *self._check_values(),
            *self._count_work(),
            *self._check_memory(),
            *self._parameters(),
            "return start(kernel, stream, (unsigned)grid_blocks, parameters);",
        ]
        text = code_only("\n".join(body))
        body[:0] = [
            f"(void){self.names[p.name]}; // no part of the kernel reads it"
            for p in self.kernel.params
            if not re.search(rf"\b{self.names[p.name]}\b", text)
        ]
        lines = [INDENT + part if part else "" for line in body for part in wrapped(line)]
        return [f"{self._signature()} {{", *lines, "}"]

    def _check_arguments(self) -> Iterator[str]:
        for name, tensor in self.tensors.items():
            yield self._checked("check_tensor", name, f"{tensor.type.rank}")

    def _check_values(self) -> Iterator[str]:
        """The values the kernel was compiled for, and what it requires."""
        name = self.source.name
        for value, constant in dict.fromkeys(self.kernel.statics):
            number = self.numbers(value)
            what = c_string(f"{name}: {shown(number.text)} is ").rstrip('"')
            yield from ["", *self.numbers.take_lines()]
            yield f"if ({number.inside(ATOM)} != {constant})"
            yield (
                f'    return refuse(PK_STATIC, {what}%lld, and the kernel was compiled for {constant}", '
                f"(long long){number.inside(ATOM)});"
            )
        for node in walk(self.kernel.body):
            if isinstance(node, Require):
                condition = self._condition(node.condition)
                where = f"{Path(node.loc.file).name}:{node.loc.line}" if node.loc else "required"
                yield from ["", *comment([where]), *self.numbers.take_lines()]
                yield f"if ({condition})"
                yield f"    return refuse(PK_REQUIRE, {c_string(f'{name}: {node.message}')});"

    def _condition(self, condition: object) -> str:
        """When a requirement does not hold."""
        if not isinstance(condition, Value):
            return "false" if condition else "true"
        return f"!{self.numbers(condition).inside(ATOM)}"

    def _count_work(self) -> Iterator[str]:
        """The number of blocks: one a point of the grid, or as many as the GPU holds at once."""
        launch, cluster = self.kernel.launch, self.kernel.cluster
        assert launch is not None, "a kernel has a grid or tasks"
        axis = launch.cluster_axis if isinstance(launch, Tasks) else None
        extents = [self.numbers(d) for d in launch.dims]
        yield from ["", *self.numbers.take_lines()]
        if axis is not None and axis < len(extents) - 2:
            what = f"{self.source.name}: the tasks along axis {axis} cannot be shared by clusters of {cluster}"
            yield f"if ({extents[axis].inside(ATOM)} % {cluster} != 0) return refuse(PK_CLUSTER, {c_string(what)});"
        texts = [
            f"ceil_div({e.text}, {cluster})" if i == axis else e.text for i, e in enumerate(extents)
        ]
        yield f"const int64_t grid_extents[] = {{{', '.join(texts)}}};"
        yield "int64_t grid_points;"
        yield f"if ((code = count_work(grid_extents, {len(texts)}, &grid_points))) return code;"
        yield "if (grid_points == 0) return PK_OK; // nothing to do"
        if self.persistent:
            yield "// Persistent blocks share the tasks: as many as run at once, no more than there are tasks."
            at_once = (
                f"kernel->blocks_at_once / {cluster}" if cluster > 1 else "kernel->blocks_at_once"
            )
            times = f" * {cluster}" if cluster > 1 else ""
            yield f"const int64_t grid_blocks = smaller(grid_points, {at_once}){times};"
            return
        if cluster > 1:
            what = f"{self.source.name}: its grid cannot be cut into clusters of {cluster}"
            yield f"if (grid_points % {cluster} != 0) return refuse(PK_CLUSTER, {c_string(what)});"
        if waits_for_flags(self.kernel):
            what = f"{self.source.name}: its blocks wait for one another, and this GPU runs fewer at once"
            yield f"if (grid_points > kernel->blocks_at_once) return refuse(PK_AT_ONCE, {c_string(what)});"
        yield "const int64_t grid_blocks = grid_points;"

    def _check_memory(self) -> Iterator[str]:
        """Alignment as it was compiled for, outputs that can be written, and no memory in common."""
        yield ""
        for name, tensor in self.tensors.items():
            rank_size = f"{tensor.type.rank}, {tensor.dtype.bytes}"
            if name in self.outputs:
                yield self._checked("check_written", name, f"{tensor.type.rank}")
            if tensor.type.aligned:
                yield self._checked("check_aligned", name, rank_size)
            if self._whole_rows(tensor):
                yield self._checked("check_whole_rows", name, rank_size)
        for output, other in self._pairs():
            a, b = self.tensors[output], self.tensors[other]
            guard = ""
            if self.kernel.inplace and (a.type.rank, a.dtype) == (b.type.rank, b.dtype):
                guard = f"!is_same({self.names[output]}, {self.names[other]}, {a.type.rank}) && "
            operands = ", ".join(
                f'"{self.names[n]}", {self.names[n]}, {t.type.rank}, {t.dtype.bytes}'
                for n, t in ((output, a), (other, b))
            )
            yield f"if ({guard}(code = check_apart({operands}))) return code;"

    def _whole_rows(self, tensor: Global) -> bool:
        """Whether rows must end at 16 bytes: the copy engine may read behind them, but not write there."""
        return tensor.type.whole_rows and any(
            isinstance(n, Call)
            and n.op.effects.engine is Engine.COPY_OUT
            and tensor in map(_owner, n.args.values())
            for n in walk(self.kernel.body)
        )

    def _pairs(self) -> list[tuple[str, str]]:
        """Each output with each other tensor, once."""
        found = {
            frozenset((o, other)): (o, other)
            for o in self.outputs
            for other in self.tensors
            if other != o
        }
        return list(found.values())

    def _checked(self, function: str, name: str, rest: str) -> str:
        tensor = self.names[name]
        return f'if ((code = {function}("{tensor}", {tensor}, {rest}))) return code;'

    def _parameters(self) -> Iterator[str]:
        """The kernel's parameters in their order: tensor maps, then the other slots."""
        addresses = []
        yield ""
        for box in self.source.maps:
            tensor, name = self.tensors[box.tensor], self.names[box.tensor]
            made = free_name(f"{name}_map", self.taken)
            addresses.append(f"&{made}")
            yield f"tensor_map {made}; // boxes of {box.rows} x {box.cols} elements"
            dtype = f"MAP_{_MAP_DTYPES[MAP_DTYPE[tensor.dtype.name]]}"
            swizzle = f"MAP_SWIZZLE_{box.swizzle}"
            yield (
                f'code = encode(&kernel->cuda, &{made}, "{name}", {name}, {tensor.type.rank}, '
                f"{tensor.dtype.bytes}, {dtype}, {box.rows}, {box.cols}, {swizzle});"
            )
            yield "if (code) return code;"
        for slot in self.source.slots:
            name = self.names[slot.argument]
            match slot.kind:
                case "pointer":
                    addresses.append(f"(void *)&{name}->data")
                case "stride":
                    addresses.append(f"(void *)&{name}->strides[{slot.axis}]")
                case "extent":
                    made = free_name(f"{name}_n{slot.axis}", self.taken)
                    addresses.append(f"&{made}")
                    yield f"int32_t {made} = (int32_t){name}->shape[{slot.axis}];"
                case "scalar":
                    addresses.append(f"&{name}")
        yield f"void *parameters[] = {{{', '.join(addresses) or 'NULL'}}};"


def _owner(operand: object) -> Global | None:
    """The argument that a tensor or a tile of one belongs to."""
    if isinstance(operand, TileRef):
        return operand.tensor.owner
    return operand.owner if isinstance(operand, Global) else None


def _c_parameter(param: Global | Scalar) -> str:
    """A type as C declares it, up to the name."""
    if isinstance(param, Global):
        return "const pk_tensor *"
    return {"int": "int32_t ", "float": "float ", "bool": "bool "}[param.dtype.kind]

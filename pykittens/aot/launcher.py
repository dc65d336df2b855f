"""A compiled kernel as C: a header, and a source with the machine code and a launch that needs no Python.

The launch makes the checks of a call from Python. `launcher.c` and `numbers.c` are the same for all kernels; this file
writes the constants of a kernel, the checks of its values, and its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pykittens import settings
from pykittens.aot.expressions import HostNumbers, operand
from pykittens.aot.text import INDENT, c_string, comment, template, wrapped
from pykittens.ir.nodes import Call, Kernel, Require, Tasks, waits_for_flags, walk, written
from pykittens.ir.op import Engine
from pykittens.ir.values import Global, RegVector, Scalar, TileRef, Value
from pykittens.targets.cuda.engines import copy_operands
from pykittens.targets.names import RESERVED, free_name
from pykittens.targets.source import MAP_DTYPE, MAP_SWIZZLE, Source
from pykittens.types.tiles import Spread

# Names of C, of its headers and of the launch function, besides those of C++ and CUDA.
_TAKEN = (
    "restrict stdin stdout stderr errno EOF linux unix UNUSED OWN NAME ARCH "
    "kernel stream code arguments extents blocks maps parameters"
).split()
# Names that `launcher.c` and `numbers.c` define.
# Types and functions that they use, and names that the header declares.
_PUBLIC = re.compile(r"\b(?:pk|PK)_\w+")
_USED = re.compile(r"\b(\w+_t|\w+(?=\())")
_DEFINITION = re.compile(r"^(?:(?:UNUSED )?static|#define|\}) .*?(\w+)[(;\[]", re.MULTILINE)
_BYTES_A_LINE = 28
_C_TYPES = {"int": "int32_t", "float": "float", "bool": "bool"}


def c_files(kernel: Kernel, source: Source, arch: str, cubin: bytes) -> dict[str, str]:
    """The header and the launcher of a lowered kernel, by file name."""
    launcher = CLauncher(kernel, source, arch, cubin)
    return {f"{source.name}.h": launcher.header(), f"{source.name}.c": launcher.program()}


def _moves_vector(call: Call) -> bool:
    """Whether a plain vector is among the operands or results of a call."""
    values = (*call.results, *call.args.values())
    return any(isinstance(v, RegVector) and v.type.spread is Spread.PLAIN for v in values)


def _tensors(call: Call) -> Iterator[Global]:
    """The arguments of a kernel of which a call has a part as an operand."""
    for part in call.args.values():
        if isinstance(part, Global | TileRef):
            yield part.first.tensor.owner


class CLauncher:
    """Writes the C of one kernel."""

    def __init__(self, kernel: Kernel, source: Source, arch: str, cubin: bytes) -> None:
        self.kernel, self.source, self.arch, self.cubin = kernel, source, arch, cubin
        code = template("numbers.c") + template("launcher.c") + template("tensor.h")
        defined = {*_DEFINITION.findall(code), *_USED.findall(code), *_PUBLIC.findall(code)}
        self.taken = {*RESERVED, *_TAKEN, *defined, *self._constants(), source.name}
        self.names = {p.name: free_name(p.name, self.taken) for p in kernel.params}
        self.tensors = [p for p in kernel.params if isinstance(p, Global)]
        self.numbers = HostNumbers(kernel, self.names, self.taken)
        self.outputs = written(kernel)
        # The copy engine may read past the end of a row, but it must not write there. Lanes move whole chunks.
        calls = [n for n in walk(kernel.body) if isinstance(n, Call)]
        stores = (c for c in calls if c.op.effects.engine is Engine.COPY_OUT)
        moved = {copy_operands(c)[1].first.tensor.owner for c in stores}
        moved |= {tensor for c in calls if _moves_vector(c) for tensor in _tensors(c)}
        self.whole_rows = {t.name for t in self.tensors if t in moved and t.type.whole_rows}

    # -- the two texts -------------------------------------------------------------------------

    def header(self) -> str:
        """The header: how to use the kernel, and its functions."""
        texts = {
            "TITLE": "\n".join(comment([self.source.name, *self.kernel.doc.splitlines()]))[3:],
            "NAME": self.source.name,
            "ARCH": self.arch,
            "TENSOR": template("tensor.h").rstrip("\n"),
            "ARGUMENTS": "\n".join(comment(self._described())),
            "SIGNATURE": self._signature(),
        }
        return re.sub(r"@([A-Z]+)@", lambda found: texts[found[1]], template("launcher.h"))

    def program(self) -> str:
        """The source: constants, code that all kernels share, the launch function, and the machine code."""
        name, size = self.source.name, len(self.cubin)
        title = f"{name} for {self.arch}: the functions of {name}.h, and the machine code."
        constants = ", ".join(f"{n} = {v}" for n, v in self._constants().items())
        lines = [
            *comment([title]),
            f'#include "{name}.h"',
            "",
            f"#define OWN(name) {name}_##name",
            f'#define NAME "{name}"',
            f'#define ARCH "{self.arch}"',
            *wrapped(f"enum {{ {constants} }};"),
            f"extern const unsigned char {name}_cubin[{size}];",
            "",
            template("numbers.c"),
            template("launcher.c"),
            *self._launch(),
            "",
            *comment([f"{name}.{self.arch}.cubin"]),
            f"const unsigned char {name}_cubin[{size}] __attribute__((aligned(64))) = {{",
        ]
        for at in range(0, size, _BYTES_A_LINE):
            lines.append(",".join(map(str, self.cubin[at : at + _BYTES_A_LINE])) + ",")
        return "\n".join([*lines, "};", ""])

    def _constants(self) -> dict[str, int]:
        launch, source = self.kernel.launch, self.source
        assert launch is not None, "a kernel has a grid or tasks"
        persistent = isinstance(launch, Tasks)
        axis = launch.cluster_axis if isinstance(launch, Tasks) else None
        return {
            "THREADS": source.threads,
            "SHARED_BYTES": source.shared_bytes,
            "OVERLAPS": int(source.overlaps and settings.overlap()),
            "IN_PLACE": int(self.kernel.inplace),
            "IS_PERSISTENT": int(persistent),
            "WAITS_FOR_BLOCKS": int(waits_for_flags(self.kernel)),
            "CLUSTER": self.kernel.cluster,
            "CLUSTER_AXIS": -1 if axis is None else axis,
        }

    # -- the signature -------------------------------------------------------------------------

    def _described(self) -> Iterator[str]:
        """A line for each argument, with the requirements that the kernel was compiled for."""
        for param in self.kernel.params:
            if isinstance(param, Global):
                parts = [f"{param.dtype}, rank {param.type.rank}"]
                parts += ["written"] * (param.name in self.outputs)
                parts += ["base and strides multiples of 16 bytes"] * param.type.aligned
                parts += ["rows, too"] * (param.name in self.whole_rows)
                yield f"{self.names[param.name]}: {', '.join(parts)}"
            else:
                yield f"{self.names[param.name]}: {param.dtype}"
        for value, constant in dict.fromkeys(self.kernel.statics):
            yield f"{HostNumbers(self.kernel, self.names, set())(value).shown}: {constant}"
        for name, constant in self.kernel.constants.items():
            yield f"{name}: {' '.join(repr(constant).split())}, a constant of the kernel"

    def _signature(self) -> str:
        parameters = [f"const {self.source.name}_kernel *kernel", "struct CUstream_st *stream"]
        for p in self.kernel.params:
            type_ = "const pk_tensor *" if isinstance(p, Global) else f"{_C_TYPES[p.dtype.kind]} "
            parameters.append(type_ + self.names[p.name])
        return "\n".join(wrapped(f"int {self.source.name}_launch({', '.join(parameters)})"))

    # -- the launch ----------------------------------------------------------------------------

    def _launch(self) -> list[str]:
        """The launch function."""
        assert self.kernel.launch is not None
        scalars = [p.name for p in self.kernel.params if isinstance(p, Scalar)]
        passed = {slot.argument for slot in self.source.slots}
        checks = [*self._check_values()]
        extents = [self.numbers(d).text for d in self.kernel.launch.dims]
        most = self.kernel.launch.most if isinstance(self.kernel.launch, Tasks) else None
        limit = None if most is None else operand(self.numbers(most).text)
        body = [
            *(f"(void){self.names[n]};" for n in scalars if n not in passed),
            "int code;",
            f"const argument arguments[{len(self.tensors)}] = {{",
            *map(self._argument, self.tensors),
            "};",
            f"if ((code = check_tensors(arguments, {len(self.tensors)}))) return code;",
            *checks,
            "",
            *self.numbers.take_lines(),
            f"const int64_t extents[] = {{{', '.join(extents)}}};",
            "int64_t blocks;",
            f"code = count_blocks(kernel, extents, {len(extents)}, &blocks);",
            "if (code != PK_OK || blocks == 0) return code;",
            *(
                []
                if limit is None
                else [f"if (blocks > {limit}) blocks = {limit} / CLUSTER * CLUSTER;"]
            ),
            f"if ((code = check_memory(arguments, {len(self.tensors)}))) return code;",
            "",
            *self._parameters(),
            "return start(kernel, stream, blocks, parameters);",
        ]
        lines = [INDENT + part if part else "" for line in body for part in wrapped(line)]
        return [f"{self._signature()} {{", *lines, "}"]

    def _argument(self, tensor: Global) -> str:
        """An entry of the table of tensors."""
        name, dtype = self.names[tensor.name], tensor.dtype
        kinds = ["ALIGNED"] * tensor.type.aligned + ["WHOLE_ROWS"] * (
            tensor.name in self.whole_rows
        )
        kinds += ["WRITTEN"] * (tensor.name in self.outputs)
        numbers = f"{tensor.type.rank}, {dtype.bytes}, {MAP_DTYPE[dtype.name]}"
        return f'    {{"{name}", "{dtype}", {numbers}, {" | ".join(kinds) or 0}, {name}}},'

    def _check_values(self) -> Iterator[str]:
        """Checks of the values that the kernel was compiled for, and of its requirements."""
        for value, constant in dict.fromkeys(self.kernel.statics):
            text, shown = self.numbers(value)
            given = operand(text)
            message = c_string(f"{shown} is ").rstrip('"')
            message += f'%lld, and the kernel was compiled for {constant}"'
            yield from ["", *self.numbers.take_lines(), f"if ({given} != {constant})"]
            yield f"    return refuse(PK_STATIC, {message}, (long long){given});"
        for node in walk(self.kernel.body):
            if isinstance(node, Require):
                holds = node.condition
                text = self.numbers(holds).text if isinstance(holds, Value) else str(int(holds))
                line = f"{Path(node.loc.file).name}:{node.loc.line}" if node.loc else "required"
                yield from ["", *comment([line]), *self.numbers.take_lines()]
                yield f"if (!{operand(text)})"
                yield f"    return refuse(PK_REQUIRE, {c_string(node.message)});"

    def _parameters(self) -> Iterator[str]:
        """The kernel's parameters in their order: tensor maps, then the other slots."""
        addresses = [f"&maps[{i}]" for i in range(len(self.source.maps))]
        if addresses:
            yield f"tensor_map maps[{len(addresses)}];"
        position = {tensor.name: i for i, tensor in enumerate(self.tensors)}
        for i, box in enumerate(self.source.maps):
            yield (
                f"if ((code = encode(kernel, &maps[{i}], &arguments[{position[box.tensor]}], "
                f"{box.rows}, {box.cols}, {box.row_axis}, {MAP_SWIZZLE[box.swizzle]}))) return code;"
            )
        for slot in self.source.slots:
            name = self.names[slot.argument]
            match slot.kind:
                case "pointer":
                    addresses.append(f"(void *)&{name}->data")
                case "stride":
                    addresses.append(f"(void *)&{name}->strides[{slot.axis}]")
                case "extent":
                    extent = free_name(f"{name}_n{slot.axis}", self.taken)
                    addresses.append(f"&{extent}")
                    yield f"int32_t {extent} = (int32_t){name}->shape[{slot.axis}];"
                case "scalar":
                    addresses.append(f"&{name}")
        yield f"void *parameters[] = {{{', '.join(addresses) or 'NULL'}}};"

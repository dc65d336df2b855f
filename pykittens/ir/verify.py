"""What must hold of a whole recorded kernel before it is lowered."""

from __future__ import annotations

from pykittens.errors import LanguageError
from pykittens.ir.nodes import Acquire, Call, Kernel, Pipeline, Role, Side, blocks, walk
from pykittens.ir.values import Scalar


def verify(kernel: Kernel) -> None:
    """Raise a KernelError for a kernel whose parts do not fit together."""
    if kernel.launch is None:
        raise LanguageError(
            f"{kernel.name}: the kernel has no grid",
            loc=kernel.loc,
            help="start with pk.grid(...) or pk.persistent(...)",
        )
    if kernel.has_roles:
        _only_scalars_outside_roles(kernel)
    for pipeline in kernel.pipelines:
        _both_ends(kernel, pipeline)


def _only_scalars_outside_roles(kernel: Kernel) -> None:
    for node in kernel.body.nodes:
        if isinstance(node, Role):
            continue
        for inner in (node, *(n for b in blocks(node) for n in walk(b))):
            outside = isinstance(inner, Acquire) or (
                isinstance(inner, Call)
                and (
                    not inner.op.effects.pure
                    or not all(isinstance(r, Scalar) for r in inner.results)
                )
            )
            if outside:
                what = inner.op.name if isinstance(inner, Call) else "a stage"
                raise LanguageError(
                    f"{what}: stands outside the roles of a kernel that has some",
                    loc=getattr(inner, "loc", None),
                    help="outside roles there are scalars only; move it into the role that needs it",
                )


def _both_ends(kernel: Kernel, pipeline: Pipeline) -> None:
    sides: dict[Side, list[Acquire]] = {"fill": [], "drain": []}
    for node in walk(kernel.body):
        if isinstance(node, Acquire) and node.pipeline is pipeline:
            sides[node.side].append(node)
    done = {"fill": "filled", "drain": "drained"}
    for side, other in (("fill", "drain"), ("drain", "fill")):
        if sides[side] and not sides[other]:  # type: ignore[index]
            raise LanguageError(
                f"the pipeline `{pipeline.name}` is {done[side]} and never {done[other]}",
                loc=sides[side][0].loc,  # type: ignore[index]
                operands={"made at": pipeline.loc},
                help=f"another role takes its stages with `{pipeline.name}.{other}()`",
            )

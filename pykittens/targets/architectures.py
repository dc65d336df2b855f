"""All targets, and the choice of a target for an architecture."""

from __future__ import annotations

import re
from dataclasses import replace

from pykittens.errors import BackendError
from pykittens.targets.cuda.sm_80 import SM_80
from pykittens.targets.cuda.sm_89 import SM_89
from pykittens.targets.cuda.sm_90 import SM_90
from pykittens.targets.target import Target

TARGETS = {target.name: target for target in (SM_80, SM_89, SM_90)}

_ARCHITECTURE = re.compile(r"sm_(\d+)([af]?)")


def target_for(arch: str, chosen: str = "") -> Target:
    """The target of an architecture such as `sm_90a`: its own, else the newest target whose programs it runs.

    `chosen` names another target, whose lowerings and limits are used.
    """
    if chosen:
        return _chosen(arch, chosen)
    if arch in TARGETS:
        return TARGETS[arch]
    able = [t for name, t in TARGETS.items() if _runs(arch, name)]
    if not able:
        raise BackendError(
            f"no target for the architecture {arch!r}",
            help=f"there are targets for {', '.join(TARGETS)} and newer architectures; "
            "the emulator runs everywhere",
        )
    newest = max(able, key=lambda t: _number(t.name))
    card = f"sm_{_number(arch)}"
    return replace(
        newest, name=arch, arch=arch, shared_bytes=newest.cards.get(card, newest.shared_bytes)
    )


def _chosen(arch: str, name: str) -> Target:
    if name not in TARGETS:
        raise BackendError(f"no target {name!r}", help=f"there are {', '.join(TARGETS)}")
    if not _runs(arch, name):
        raise BackendError(f"{arch} cannot run programs for {name}")
    least = min(TARGETS[name].shared_bytes, target_for(arch).shared_bytes)
    return replace(TARGETS[name], arch=arch, shared_bytes=least)


def _number(arch: str) -> int:
    match = _ARCHITECTURE.fullmatch(arch)
    return int(match[1]) if match else 0


def _runs(arch: str, name: str) -> bool:
    """Whether an architecture runs a target's programs; programs for `sm_90a` and the like do not run on newer ones."""
    if arch == name:
        return True
    match = _ARCHITECTURE.fullmatch(name)
    return match is not None and not match[2] and _number(arch) >= int(match[1])

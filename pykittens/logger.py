"""The log of the package: recordings, compilations, loads and tuning of kernels. PYKITTENS_LOG shows it."""

from __future__ import annotations

import logging

from pykittens import settings

log = logging.getLogger("pykittens")

if settings.LOG.read() not in ("", "0"):
    _handler = logging.StreamHandler()
    _handler.setFormatter(logging.Formatter("%(name)s %(asctime)s %(message)s", "%H:%M:%S"))
    log.addHandler(_handler)
    log.setLevel(logging.INFO)

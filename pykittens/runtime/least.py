"""The oldest releases with which the package works; pyproject.toml and docs/install.md state them, too."""

PYTHON = (3, 11)
PACKAGES = {"numpy": (2,), "ml_dtypes": (0, 5), "rich": (13,)}
TORCH = (2, 9)
NVRTC = (12, 8)
CUDA = (12, 0)  # of the driver
# The first driver for each major version of CUDA: NVIDIA, "CUDA Compatibility", Minor Version Compatibility.
DRIVERS = {12: 525, 13: 580}


def shown(version: tuple[int, ...]) -> str:
    """A version as text, such as 12.8."""
    return ".".join(map(str, version))

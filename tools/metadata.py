"""README.md as package indexes show it: a link to a file of the repository, which they lack, becomes its text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK_TO_A_FILE = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)\s]+\)")


class Readme(MetadataHookInterface):
    """Sets the long description of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text of the page to the metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        shown = _LINK_TO_A_FILE.sub(r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}

"""HTML that a test reads back."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br"}


class Parsed(HTMLParser):
    """The elements of a page: their attributes and texts; fails where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [a[name] or "" for _, a in self.found if name in a]

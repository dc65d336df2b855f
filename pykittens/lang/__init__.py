"""Python in, IR out: rewriting, recording, and the words of the language."""

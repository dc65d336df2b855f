"""The library, one file per kernel."""

"""Passes over a recorded kernel, the same for the emulator and every target."""

"""Timelines of a launch: its events, with estimated times."""

"""Roles translated to Python, which computes with whole arrays: no lanes, no races."""

"""Megakernels: programs whose instructions are kernels with roles, run by one launch of blocks that stay.

Each block has a queue of instructions. The roles of all kinds of instructions are merged: a role of the block goes
through the queue, and does its part of one instruction while other roles are at others. Which instruction waits for
which follows from the tiles that they read and write.
"""

from pykittens.mega.program import Kind, Program

__all__ = ["Kind", "Program"]

"""Generic instructions, of which programs for models are made."""

from pykittens.mega.isa.machine import Machine, Matrix, Vector, halves_in_turn, in_turn

__all__ = ["Machine", "Matrix", "Vector", "halves_in_turn", "in_turn"]

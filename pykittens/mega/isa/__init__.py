"""Generic instructions, of which programs for models are made."""

from pykittens.mega.isa.machine import Machine
from pykittens.mega.isa.memory import Matrix, Pages, Vector
from pykittens.mega.isa.packing import halves_in_turn, in_turn

__all__ = ["Machine", "Matrix", "Pages", "Vector", "halves_in_turn", "in_turn"]

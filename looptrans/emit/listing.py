"""From a listing to the text of its module: derived, lowered, printed."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.blocks.lower import lower
from looptrans.blocks.program import BlockProgram, NotLowered
from looptrans.derivation.derive import derive
from looptrans.emit.identifiers import identifier
from looptrans.emit.module import module, names
from looptrans.emit.refusal import Refused
from looptrans.ir.program import Program
from looptrans.version import __version__


@dataclass(frozen=True, slots=True)
class Emitted:
    """A listing as a module of kernels.

    Attributes:
        name: What its file is called, without `.py`.
        launcher: What its launcher is called: the same, unless that name has a meaning already.
        text: The module.
        blocks: What was printed.
    """

    name: str
    launcher: str
    text: str
    blocks: BlockProgram


def lowered(program: Program) -> BlockProgram:
    """Return a listing as operations on blocks.

    Raises:
        Refused: It cannot be run in blocks.
    """
    derivation = derive(program, "fold")
    try:
        return lower(derivation)
    except NotLowered as error:
        raise Refused(error, program, derivation.last) from None


def emitted(program: Program) -> Emitted:
    """Return the module of a listing.

    Raises:
        Refused: It cannot be run in blocks.
    """
    blocks = lowered(program)
    called = names(blocks)
    return Emitted(called.file, called.launcher, module(blocks, version=__version__), blocks)


def module_name(program: Program) -> str:
    """Return what a listing's file is called, without `.py`: `Class.method` is `Class_method`."""
    return identifier(program.name)

"""Terms of index expressions that cancel, left out.

    K[c[b] + n - c[b], e]    ->    K[n, e]

What is solved for the variable of a loop is put in where that variable stood, and says of another
variable afterwards what it said of the first: only then is it seen that two terms are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.ir.affine import simplified
from looptrans.ir.index import Arith, Index, Neg, children, rebuild
from looptrans.ir.program import Program
from looptrans.ir.rewrite import indices_changed


def with_terms_cancelled(program: Program) -> Program:
    """Return a program without such terms; other index expressions stay as they are written."""
    return replace(program, body=indices_changed(program.body, _shorter))


def _shorter(index: Index) -> Index:
    """Return a sum without terms that cancel, also inside of other index expressions."""
    if isinstance(index, Neg) or (isinstance(index, Arith) and index.op in ("+", "-")):
        plain = simplified(index)
        if len(list(_terms(plain))) < len(list(_terms(index))):
            return _shorter(plain)
    parts = children(index)
    return rebuild(index, tuple(_shorter(part) for part in parts)) if parts else index


def _terms(index: Index) -> Iterator[Index]:
    match index:
        case Neg(operand):
            yield from _terms(operand)
        case Arith("+" | "-", left, right):
            yield from _terms(left)
            yield from _terms(right)
        case _:
            yield index

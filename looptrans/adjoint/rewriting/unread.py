"""What a listing sets and nothing reads, left out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from looptrans.adjoint.carried.recurrences import again
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.transforms.editing.accesses import sites_of


def without_unread(program: Program, names: Collection[str]) -> Program:
    """Leave out what sets names that nothing reads, with loops and guards that do nothing else.

    Args:
        program: The program.
        names: The names that may go, none of an output.
    """
    unread = {n for n in names if all(s.relation.is_write for s in sites_of(program, n))}
    if not unread:
        return program

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign(targets=(target,)) if target.array in unread:
                return ()
            case Declaration(array) if array in unread:
                return ()
            case Loop(body=()) | If(body=(), orelse=()):
                return ()
            case _:
                return (node,)

    arrays = tuple(array for array in program.arrays if array.name not in unread)
    return again(replace(program, body=rewritten(program.body, change), arrays=arrays))

"""Puts parallel loops, private names, sections and barriers into programs at random."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from looptrans.frontend.appearance import names_in
from looptrans.frontend.updates import update_operand
from looptrans.ir.program import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Declaration,
    If,
    Loop,
    Node,
    Program,
)


def mentioned(body: tuple[Node, ...]) -> set[str]:
    return set(names_in((), body))


class Parallelizer:
    """Puts them, and comments, into one program.

    The result is one that the frontend accepts, but for integer scalars in subscripts that a
    barrier makes uncertain. It may have races.
    """

    def __init__(self, random: Random, program: Program) -> None:
        self.random = random
        self.program = program
        self.locals = {a.name for a in program.arrays if a.role == "local"} - {*program.outputs}

    def result(self) -> Program:
        body = tuple(self.node(n, self.outside(n), False, False) for n in self.program.body)
        return replace(self.program, body=body)

    def outside(self, loop: Node) -> set[str]:
        """What is mentioned outside a loop at the top, the creations of the names aside."""
        others = tuple(n for n in self.program.body if n is not loop)
        found = mentioned(tuple(n for n in others if not isinstance(n, Declaration)))
        shapes = [n.creation for n in others if isinstance(n, Declaration)]
        return found | {
            name for create in shapes for name in mentioned((Assign("", (), (create,)),))
        }

    def chance(self, out_of: int) -> bool:
        return self.random.randrange(out_of) == 0

    def comments(self) -> tuple[str, tuple[str, ...]]:
        beside = "beside" if self.chance(3) else ""
        return beside, ("above", "it") if self.chance(3) else ()

    def node(self, node: Node, outside: set[str], parallel: bool, atomic: bool) -> Node:
        match node:
            case Loop():
                return self.loop(node, outside, parallel, atomic)
            case If():
                around = outside | mentioned((replace(node, body=(), orelse=()),))
                then = self.body(node.body, around | mentioned(node.orelse), parallel, atomic, "")
                other = around | mentioned(node.body)
                return replace(
                    node, body=then, orelse=self.body(node.orelse, other, parallel, atomic, "")
                )
            case _:
                return node

    def loop(self, loop: Loop, outside: set[str], parallel: bool, atomic: bool) -> Loop:
        own = mentioned((replace(loop, body=()),))
        free = sorted((self.locals & mentioned(loop.body)) - outside - own)
        private = tuple(name for name in free if self.chance(2))
        now = self.chance(2)
        turn = loop.variable if now else ""
        body = self.body(loop.body, outside | own, parallel or now, atomic, turn)
        if now and self.chance(2):
            at = self.random.randrange(len(body) + 1)
            body = (*body[:at], Barrier(*self.comments()), *body[at:])
        return replace(
            loop, body=body, private=private, execution="parallel" if now else "sequential"
        )

    def body(
        self, body: tuple[Node, ...], outside: set[str], parallel: bool, atomic: bool, turn: str
    ) -> tuple[Node, ...]:
        start = self.random.randrange(len(body) + 1)
        stop = self.random.randrange(start, len(body) + 1)
        wrap = parallel and not atomic and self.chance(2)
        found: list[Node] = []
        for number, node in enumerate(body):
            others = outside | mentioned(body[:number] + body[number + 1 :])
            inner = self.node(node, others, parallel, atomic or (wrap and start <= number < stop))
            operator = self.operator(inner)
            if operator and parallel and not self.locals & mentioned((inner,)) and self.chance(2):
                comment, leading = self.comments()
                inner = BlockReduce(operator, (inner,), comment, leading)  # type: ignore[arg-type]
            found.append(inner)
        if wrap:
            comment, leading = self.comments()
            block = Atomic(
                tuple(found[start:stop]), turn or None if self.chance(2) else None, comment, leading
            )
            found[start:stop] = [block]
        return tuple(found)

    def operator(self, node: Node) -> str:
        for operator in ("+", "*", "max", "min"):
            if isinstance(node, Assign) and (operand := update_operand(node, operator)):
                array = node.targets[0].array
                if array not in mentioned((replace(node, targets=(), values=(operand,)),)):
                    return operator
        return ""

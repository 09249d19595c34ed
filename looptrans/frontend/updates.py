"""What may stand in a reduce block: updates `cell = cell op x`, and nothing that reads a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from looptrans.frontend.appearance import names_at
from looptrans.frontend.mistakes import BadReduction
from looptrans.frontend.scope import Block
from looptrans.ir.index import lets
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node
from looptrans.ir.source import Span
from looptrans.ir.value import Binary, Call, Read, Value
from looptrans.ir.walk import inner_bodies, nodes

UPDATES = {
    "+": "cell += x",
    "*": "cell *= x",
    "max": "cell = max(cell, x)",
    "min": "cell = min(cell, x)",
}


def not_updates(section: BlockReduce, blocks: Sequence[Block]) -> list[BadReduction]:
    """Find what a reduce block may not hold.

    Args:
        section: The block.
        blocks: The loops, guards and sections around it, outermost first.
    """
    operands = {
        node.span: operand
        for node in nodes(section.body)
        if isinstance(node, Assign) and (operand := update_operand(node, section.operator))
    }
    updated = {
        node.targets[0].array
        for node in nodes(section.body)
        if isinstance(node, Assign) and node.span in operands
    }
    found = [
        *_others(section.body, section.operator, operands),
        *_looks(section.body, updated, operands),
    ]
    return found or list(_kept_private(section.body, _private_around(blocks)))


def update_operand(statement: Assign, operator: str) -> Value | None:
    """Return the x of a statement that is `cell = cell op x`, None for any other."""
    if len(statement.targets) != 1 or len(statement.values) != 1:
        return None
    cell = Read(statement.targets[0])
    match statement.values[0]:
        case Binary(op, left, operand) if op == operator and left == cell:
            return operand
        case Call(function, (left, operand)) if function == operator and left == cell:
            return operand
        case _:
            return None


def _others(
    body: tuple[Node, ...], operator: str, operands: dict[Span, Value]
) -> Iterator[BadReduction]:
    """Find what is neither an update nor a sequential loop or guard around some."""
    for node in body:
        match node:
            case Assign() if node.span not in operands:
                yield BadReduction(
                    f'the statement is no update with "{operator}"',
                    node.span,
                    why=f"in this block each statement is {UPDATES[operator]}, the cell first",
                    remedy=_instead(node, operator),
                )
            case Loop(execution="parallel"):
                yield BadReduction(
                    "a parallel loop stands inside a reduce block",
                    _head(node.span),
                    why="the iterations of the parallel loop around the block are combined",
                    remedy="put the with inside the parallel loop",
                )
            case Atomic() | BlockReduce():
                word = "an atomic" if isinstance(node, Atomic) else "a reduce"
                yield BadReduction(
                    f"{word} block stands inside a reduce block",
                    _head(node.span),
                    why="a reduce block holds updates, sequential loops and guards",
                    remedy="leave the inner with out, or end the reduce block before it",
                )
            case _:
                for inner in inner_bodies(node):
                    yield from _others(inner, operator, operands)


def _instead(statement: Assign, operator: str) -> str:
    out = "or take the statement out of the block"
    match statement.values:
        case (Binary("-", left, _),) if operator == "+" and left == Read(statement.targets[0]):
            return f"write cell += -(x), {out}"
        case _:
            return f"write it as {UPDATES[operator]}, {out}"


def _looks(
    body: tuple[Node, ...], updated: set[str], operands: dict[Span, Value]
) -> Iterator[BadReduction]:
    """Find what reads something that the block updates, beside the update itself."""
    for node in nodes(body):
        read: set[str] = set()
        match node:
            case Assign() if node.span in operands:
                read |= names_at(replace(node, targets=(), values=(operands[node.span],)))
                read |= {let.name for i in node.targets[0].indices for let in lets(i)}
            case If() | Loop():
                read |= names_at(node)
            case _:
                pass
        for name in sorted(read & updated):
            yield BadReduction(
                f"{name!r} is updated in the reduce block, and is read there as well",
                node.span if isinstance(node, Assign) else _head(node.span),
                why="the updates are joined to it only when all iterations have handed them in",
                remedy=f"read {name} after a barrier, or make the block an atomic one",
            )


def _private_around(blocks: Sequence[Block]) -> set[str]:
    """Return what is private to the innermost parallel loop and the loops in it."""
    found: set[str] = set()
    for block in reversed(blocks):
        found.update(block.private)
        if block.kind == "parallel":
            break
    return found


def _kept_private(body: tuple[Node, ...], private: set[str]) -> Iterator[BadReduction]:
    """Find updates of cells that no two iterations share."""
    for node in body:
        if isinstance(node, Assign) and node.targets[0].array in private:
            name = node.targets[0].array
            yield BadReduction(
                f"{name!r} is updated in a reduce block, and is private",
                node.span,
                why="each iteration has its own, so there is nothing to combine",
                remedy=f"leave {name} out of private:, or take the statement out of the block",
            )
        inside = private | set(node.private) if isinstance(node, Loop) else private
        for inner in inner_bodies(node):
            yield from _kept_private(inner, inside)


def _head(span: Span) -> Span:
    """Return the first line of what a span covers."""
    return Span(span.line, span.column, span.line, 1_000_000)

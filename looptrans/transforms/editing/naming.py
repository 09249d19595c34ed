"""Names for what a transformation adds: none that the program, or the language, has already."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from keyword import iskeyword, issoftkeyword

from looptrans.ir.condition import Data, walk_condition
from looptrans.ir.functions import CREATIONS, FUNCTIONS
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.value import Reduce, reductions, walk_value
from looptrans.ir.walk import nodes
from looptrans.transforms.editing.errors import NameInUse
from looptrans.transforms.editing.tree import statements_in

# What a listing cannot use for a name of its own without a second thought.
_WORDS = frozenset(
    ("range", "parallel", "atomic", "reduce", "barrier", "private", "all", "inf", "nan", "pi")
)


def names_used(program: Program) -> frozenset[str]:
    """Return every name that means something in a program; of `self.N` also the `self`."""
    found = {*program.arguments, *(array.name for array in program.arrays)}
    found |= {parameter.name for parameter in program.parameters}
    for contract in program.contracts:
        found |= {generator.variable for generator in contract.generators}
    found |= set().union(*(binders(node) for node in program.body))
    return frozenset(found | {name.partition(".")[0] for name in found})


def binders(node: Node) -> frozenset[str]:
    """Return the variables that the loops and sums of a subtree bind, its own included."""
    found: set[str] = set()
    for inner in nodes((node,)):
        match inner:
            case Loop(variable):
                found.add(variable)
            case Assign():
                for value in inner.values:
                    for part in walk_value(value):
                        if isinstance(part, Reduce):
                            found |= {generator.variable for generator in part.generators}
            case If():
                found |= _bound_in(inner)
            case _:
                pass
    return frozenset(found)


def _bound_in(guard: If) -> set[str]:
    return {
        generator.variable
        for part in walk_condition(guard.condition)
        if isinstance(part, Data)
        for value in reductions(part.value)
        for generator in value.generators
    }


def fresh_name(program: Program, wish: str, others: Collection[str] = ()) -> str:
    """Return a name that nothing in the program has: `wish`, or with the next free number.

    Args:
        program: The program.
        wish: The name to take if it is free; `j0` is followed by `j1`, `acc` by `acc1`.
        others: Names that are not free either.
    """
    taken = names_used(program) | _WORDS | FUNCTIONS.keys() | {*CREATIONS, *others}
    stem = wish.rstrip("0123456789")
    number = int(wish[len(stem) :] or 0)
    name = wish
    while name in taken or iskeyword(name) or issoftkeyword(name):
        number += 1
        name = f"{stem}{number}"
    return name


def fresh_label(program: Program) -> str:
    """Return the label after the highest of the form `S<number>`."""
    numbers = [
        int(label[1:])
        for label in statements_in(program.body)
        if label[0] == "S" and label[1:].isdigit()
    ]
    return f"S{max(numbers, default=0) + 1}"


def with_array(
    program: Program, array: Array, declaration: Declaration | None = None
) -> tuple[Program, int]:
    """Add a local array or scalar, and what gives it its first values where there is such.

    Returns:
        The program, and by how much the first number of every position has grown.

    Raises:
        NameInUse: Something else has the name.
    """
    if array.name in names_used(program):
        raise NameInUse(
            f"the name {array.name} is already in use", None, remedy="choose another name"
        )
    body = program.body
    at = 0
    if declaration is not None:
        while at < len(body) and isinstance(body[at], Declaration):
            at += 1
        body = (*body[:at], declaration, *body[at:])
    grown = replace(program, arrays=(*program.arrays, array), body=body)
    return grown, 0 if declaration is None else 1

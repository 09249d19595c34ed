"""A program in which products of sizes and variables are numbers of which nothing is known.

    for i in range(t * B, min(t * B + B, N)):    ->    for i in range(p[t], min(p[t] + B, N)):

No polyhedron has such a product. As an element of an array of its own it says no more than that it
is the same for the same t: an order of loops that is right whatever such an array contains is right
for the product.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count as counting

from looptrans.ir.affine import form_of, in_one_order, product, total
from looptrans.ir.index import (
    Arith,
    Index,
    Int,
    Opaque,
    Param,
    Var,
    children,
    lets,
    rebuild,
    variables,
)
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Parameter, Program
from looptrans.ir.rewrite import (
    access_changed,
    condition_changed,
    range_changed,
    rewritten,
    value_changed,
)
from looptrans.transforms.editing.naming import names_used


def with_any_products(*programs: Program) -> tuple[Program, ...] | None:
    """Return programs whose index expressions are sums; None where they are such already.

    Args:
        programs: The programs; what is the same in two of them stays the same.
    """
    work = _Work(frozenset().union(*map(names_used, programs)))
    bodies = [rewritten(program.body, work.node) for program in programs]
    if not work.names:
        return None
    arrays = [tuple(map(work.array, program.arrays)) for program in programs]
    made = tuple(Parameter(name, "size") for name in work.numbers)
    return tuple(
        replace(program, body=body, arrays=own, parameters=(*program.parameters, *made))
        for program, body, own in zip(programs, bodies, arrays, strict=True)
    )


@dataclass(slots=True)
class _Work:
    """Replaces products.

    Attributes:
        taken: Names that mean something.
        names: What each product is called.
        numbers: The names of those of sizes alone.
    """

    taken: frozenset[str]
    names: dict[Index, str] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)

    def node(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Assign(targets=targets, values=values):
                cells = tuple(access_changed(target, self.index) for target in targets)
                return (
                    replace(
                        node,
                        targets=cells,
                        values=tuple(value_changed(value, self.index) for value in values),
                    ),
                )
            case If(condition=condition):
                return (replace(node, condition=condition_changed(condition, self.index)),)
            case Loop(range=ends):
                return (replace(node, range=range_changed(ends, self.index)),)
            case Declaration(creation=creation):
                shape = tuple(map(self.index, creation.shape))
                return (replace(node, creation=replace(creation, shape=shape)),)
            case _:
                return (node,)

    def array(self, array: Array) -> Array:
        """Return an array with extents without products."""
        shape = tuple(None if each is None else self.index(each) for each in array.shape)
        return replace(array, shape=shape)

    def index(self, index: Index) -> Index:
        """Return an index expression without products."""
        match index:
            case Arith("*", left, right) if not any(isinstance(p, Int) for p in (left, right)):
                return self.product(self.index(left), self.index(right))
            case Arith("//" | "%" as op, left, right) if not isinstance(right, Int):
                return self.number(Arith(op, self.index(left), self.index(right)))
            case _:
                parts = children(index)
                return rebuild(index, tuple(map(self.index, parts))) if parts else index

    def product(self, left: Index, right: Index) -> Index:
        """Multiply out."""
        parts: list[Index] = []
        for one, n in _terms(left):
            for other, m in _terms(right):
                both = [each for each in (one, other) if each is not None]
                part = both[0] if both else Int(1)
                if len(both) == 2:
                    part = self.number(in_one_order(Arith("*", *both)))
                parts.append(product(n * m, part))
        return total(*parts)

    def number(self, index: Index) -> Index:
        """Return any number, the same for the same values of the variables in it."""
        if lets(index):
            return index
        inside = variables(index)
        if index not in self.names:
            count = len(self.names)
            name = next(n for n in map("any{}".format, counting(count)) if n not in self.taken)
            self.names[index] = name
            self.taken |= {name}
            if not inside:
                self.numbers.append(name)
        name = self.names[index]
        return Opaque(name, tuple(map(Var, inside))) if inside else Param(name)


def _terms(index: Index) -> list[tuple[Index | None, int]]:
    form = form_of(index)
    found: list[tuple[Index | None, int]] = list(form.terms.items())
    return [*found, (None, form.constant)] if form.constant or not found else found

"""Where the value of each operand comes from: one read, one cell, one write.

`looptrans.analysis.dependence.flow` relates statement instances. To compare two programs that keep
values in different places, the same question is asked operand by operand. An *operand point* is an
instance of a statement together with the values of the bound variables and of the whole dimensions
of one of its accesses, so that it touches exactly one cell:

    S1: t = sum(A[i, e] for e in range(E)) + v[:]   points of A: (i, e); points of v: (i, x)

A write that only the running program decides on is taken as one that always happens and may put
back what was there: it overwrites, and the old value is one more operand of its statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import islpy as isl

from looptrans.analysis.dependence.accessed import tidied
from looptrans.analysis.dependence.last_writers import without
from looptrans.analysis.isl_model.formula import conjunction
from looptrans.analysis.isl_model.model import AccessModel, Model, StatementModel
from looptrans.analysis.isl_model.polyhedra import before, cell_formula, domain_formula, relation_of
from looptrans.ir.value import Whole


@dataclass(frozen=True, slots=True)
class Operand:
    """A read whose source is asked for.

    Attributes:
        name: The name of its points in isl.
        array: What it reads.
        statement: Whose operand it is; None for the array as it is at the end of the run.
        position: Which of the statement's accesses it is; that of a write for the old value of a
            cell that may be left as it is, then `is_old`.
        touched: Its points, each with its cell.
        is_may: Whether only the running program knows if it reads.
    """

    name: str
    array: str
    statement: StatementModel | None
    position: int
    touched: isl.Map
    is_may: bool
    is_old: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A write: its points, each with its cell."""

    name: str
    array: str
    statement: StatementModel
    position: int
    touched: isl.Map
    is_may: bool


@dataclass(slots=True)
class Sources:
    """The operands and targets of a program, and the flow between them.

    Attributes:
        model: The program.
        tag: A letter that tells the points of two programs apart.
        operands: The operands of all statements, in order.
        targets: Their writes.
    """

    model: Model
    tag: str
    operands: list[Operand] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    _between: dict[tuple[str, str], isl.Map] = field(default_factory=dict)
    _flows: dict[str, dict[str, isl.Map]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, tag: str) -> Sources:
        """Collect the operands and targets of a program without opaque terms."""
        made = cls(model, tag)
        for statement in model.statements:
            own = [access for access in model.accesses if access.statement is statement]
            for position, access in enumerate(own):
                made._add(access, position)
        return made

    def _add(self, access: AccessModel, position: int) -> None:
        statement = access.statement
        suffix = f"{self.tag}{statement.number}_{position}"
        if access.is_write:
            written = self._points(access, f"w{suffix}")
            self.targets.append(
                Target(f"w{suffix}", access.array, statement, position, written, access.is_may)
            )
            if not access.is_may:
                return
        read = self._points(access, f"r{suffix}")
        self.operands.append(
            Operand(
                f"r{suffix}",
                access.array,
                statement,
                position,
                read,
                access.is_may,
                is_old=access.is_write,
            )
        )

    def _points(self, access: AccessModel, name: str) -> isl.Map:
        model, statement = self.model, access.statement
        cell = [f"x{number}" for number in range(len(access.subscripts))]
        generators = {g.variable: f"g{number}" for number, g in enumerate(access.generators)}
        formula = conjunction(
            [
                domain_formula(model, statement),
                cell_formula(model, access, cell, generators=generators),
            ]
        )
        dims = [f"i{level}" for level in range(statement.depth)]
        dims += generators.values()
        dims += [x for x, s in zip(cell, access.subscripts, strict=True) if isinstance(s, Whole)]
        ends = f"[{', '.join(dims)}] -> [{', '.join(cell)}]"
        bare = relation_of(f"{model.prefix}{{ {ends} : {formula} }}")
        named = bare.set_tuple_name(isl.dim_type.in_, name)
        return named.set_tuple_name(isl.dim_type.out, f"a{self._array(access.array)}")

    def _array(self, name: str) -> int:
        return next(n for n, array in enumerate(self.model.program.arrays) if array.name == name)

    def at_end(self, array: str) -> Operand:
        """Return the operand that reads every cell of an array after the last statement."""
        rank = len(self.model.shapes[array])
        cell = ", ".join(f"x{number}" for number in range(rank))
        inside = [f"x{number} >= 0" for number in range(rank)]
        name = f"e{self.tag}{self._array(array)}"
        target = f"a{self._array(array)}[{cell}]"
        text = f"{{ {name}[{cell}] -> {target} : {conjunction(inside)} }}"
        return Operand(name, array, None, 0, isl.Map(self.model.prefix + text), False)

    def flow(self, operand: Operand) -> dict[str, isl.Map]:
        """Map the points of an operand to those of the writes whose values they get, by target."""
        if operand.name not in self._flows:
            self._flows[operand.name] = dict(self._last_writes(operand))
        return self._flows[operand.name]

    def _last_writes(self, operand: Operand) -> Iterator[tuple[str, isl.Map]]:
        targets = [t for t in self.targets if t.array == operand.array]
        earlier = {t.name: self.earlier(t, operand) for t in targets}
        for target in targets:
            pairs = earlier[target.name]
            for other in targets:
                if pairs.is_empty():
                    break
                again = self.rewritten(target, other).apply_range(earlier[other.name])
                if not again.is_empty():
                    pairs = tidied(without(pairs, again))
            if not pairs.is_empty():
                yield target.name, pairs.reverse()

    def earlier(self, target: Target, operand: Operand) -> isl.Map:
        """Map the points of a write to the later points of the operand with the same cell."""
        same = target.touched.apply_range(operand.touched.reverse())
        if operand.statement is not None:
            same = same.intersect(
                _order(self.model, target.statement, operand.statement, same, or_same=False)
            )
        return tidied(same)

    def rewritten(self, target: Target, other: Target) -> isl.Map:
        """Map the points of a write to those of later writes of the same cell."""
        key = (target.name, other.name)
        if key not in self._between:
            same = target.touched.apply_range(other.touched.reverse())
            # The targets of one statement are written from left to right.
            within = target.statement is other.statement and target.position < other.position
            order = _order(self.model, target.statement, other.statement, same, or_same=within)
            self._between[key] = tidied(same.intersect(order))
        return self._between[key]

    def access(self, points: Operand | Target) -> AccessModel:
        """Return the access of a statement that an operand or a target is."""
        own = [a for a in self.model.accesses if a.statement is points.statement]
        return own[points.position]

    def kept_by(self, target: str) -> Operand | None:
        """Return the old value that a write may leave as it is; None if it always happens."""
        name = f"r{target[1:]}"
        return next((o for o in self.operands if o.is_old and o.name == name), None)

    def initial(self, operand: Operand) -> isl.Map:
        """Map the points of an operand that no write reaches to their cells."""
        reached = operand.touched.domain()
        for flow in self.flow(operand).values():
            reached = reached.subtract(flow.domain())
        return operand.touched.intersect_domain(reached)


def _order(
    model: Model, first: StatementModel, second: StatementModel, pairs: isl.Map, *, or_same: bool
) -> isl.Map:
    """Return the pairs of points, with the tuples of `pairs`, whose statements run in order."""
    formula = before(first, second, ("s", "t"))
    if or_same:
        equal = conjunction(f"s{level} = t{level}" for level in range(first.depth))
        formula = f"({formula}) or ({equal})"
    left = _dims(pairs, isl.dim_type.in_, "s", first.depth)
    right = _dims(pairs, isl.dim_type.out, "t", second.depth)
    order = relation_of(f"{model.prefix}{{ [{left}] -> [{right}] : {formula} }}")
    for kind in (isl.dim_type.in_, isl.dim_type.out):
        order = order.set_tuple_name(kind, pairs.get_tuple_name(kind))
    return order


def _dims(pairs: isl.Map, kind: isl.dim_type, letter: str, depth: int) -> str:
    dims = (f"{letter}{n}" if n < depth else f"{letter}x{n}" for n in range(pairs.dim(kind)))
    return ", ".join(dims)


def to_instances(model: Model, points: Operand | Target) -> isl.Map:
    """Map the points of an access to the instances of its statement."""
    assert points.statement is not None
    depth = points.statement.depth
    dims = [f"y{number}" for number in range(points.touched.dim(isl.dim_type.in_))]
    instance = f"s{points.statement.number}[{', '.join(dims[:depth])}]"
    return isl.Map(f"{model.prefix}{{ {points.name}[{', '.join(dims)}] -> {instance} }}")

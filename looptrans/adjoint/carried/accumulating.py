"""Statements that add to what is there: `x = x + term`, `max`, `min`, also by a choice."""

from __future__ import annotations

from looptrans.algebra.positional.cells import same_cell
from looptrans.algebra.positional.values import negative, summands
from looptrans.ir.affine import difference, product, total
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction, conjuncts, negation
from looptrans.ir.index import Index, Int
from looptrans.ir.monoids import Folding
from looptrans.ir.program import Assign
from looptrans.ir.value import Access, Binary, Call, Holds, Read, Select, Value, Whole, walk_value


def are_apart(one: Access, other: Access, where: Condition = ALWAYS) -> bool:
    """Tell whether two accesses are surely to different cells.

    Args:
        one: An access.
        other: Another.
        where: What holds where they are made: `A[i]` and `A[j]` are apart where `i < j`.
    """
    if one.array != other.array:
        return True
    pairs = zip(one.subscripts, other.subscripts, strict=True)
    gaps = [
        difference(a, b) for a, b in pairs if not isinstance(a, Whole) and not isinstance(b, Whole)
    ]
    return any(_is_not_0(gap, conjuncts(where)) for gap in gaps)


def _is_not_0(gap: Index, where: tuple[Condition, ...]) -> bool:
    """Tell whether an index expression is surely not 0 where some conditions hold."""
    if isinstance(gap, Int):
        return gap.value != 0
    for part in where:
        if not isinstance(part, Relation):
            continue
        rises = part.op in (">", ">=")
        apart = difference(part.left, part.right) if rises else difference(part.right, part.left)
        for sign in (1, -1):
            left = total(gap, product(-sign, apart))  # gap = sign * apart + left
            if not isinstance(left, Int):
                continue
            over = sign * left.value
            match part.op:
                case "<" | ">" if over >= 0:  # apart is at least 1
                    return True
                case "<=" | ">=" if over > 0:
                    return True
                case "!=" if over == 0:
                    return True
                case "==" if over != 0:
                    return True
                case _:
                    pass
    return False


def folded(node: Assign) -> tuple[Folding, Value] | None:
    """Return what a statement folds into its target wherever it runs, and how."""
    if len(node.targets) != 1 or len(node.values) != 1:
        return None
    found = accumulation(node.targets[0], node.values[0])
    return None if found is None or found[2] != ALWAYS else found[:2]


def accumulation(
    target: Access,
    value: Value,
    *,
    elsewhere: bool = False,
    where: Condition = ALWAYS,
) -> tuple[Folding, Value, Condition] | None:
    """Return the operator, the term and the condition of `x = x op term if condition else x`.

    Args:
        target: What is set.
        value: What it is set to.
        elsewhere: Whether the term may read other cells of the array.
        where: What holds where it is set, by which cells are told apart.
    """
    own = Read(target)

    def reads_it(each: Value) -> bool:
        return any(
            part.access.array == target.array
            and not (elsewhere and are_apart(part.access, target, where))
            for part in walk_value(each)
            if isinstance(part, Read)
        )

    match value:
        case Select(condition, chosen, otherwise) if otherwise == own:
            found = accumulation(target, chosen, elsewhere=elsewhere, where=where)
            if found is None or reads_it(Holds(condition)):
                return None
            return found[0], found[1], conjunction(condition, found[2])
        case Select(condition, chosen, otherwise) if chosen == own:
            turned = Select(negation(condition), otherwise, chosen)
            return accumulation(target, turned, elsewhere=elsewhere, where=where)
        case Call("max" | "min" as name, arguments) if len(arguments) > 1:
            flat = _flat_call(name, arguments)
            rest = [a for a in flat if not _is_cell(a, target)]
            if len(rest) != len(flat) - 1 or any(map(reads_it, rest)):
                return None
            return name, rest[0] if len(rest) == 1 else Call(name, tuple(rest)), ALWAYS
        case Binary("+" | "-", _, _):
            terms = summands(value)
            mine = [sign for sign, term in terms if _is_cell(term, target)]
            others = [(sign, term) for sign, term in terms if not _is_cell(term, target)]
            if mine != [1] or any(reads_it(term) for _, term in others):
                return None
            added: Value | None = None
            for sign, term in others:
                if added is None:
                    added = term if sign > 0 else negative(term)
                else:
                    added = Binary("+" if sign > 0 else "-", added, term)
            return None if added is None else ("sum", added, ALWAYS)
        case _:
            return None


def _is_cell(value: Value, target: Access) -> bool:
    return isinstance(value, Read) and same_cell(value.access, target)


def _flat_call(name: str, arguments: tuple[Value, ...]) -> list[Value]:
    found: list[Value] = []
    for argument in arguments:
        if isinstance(argument, Call) and argument.function == name and len(argument.arguments) > 1:
            found += _flat_call(name, argument.arguments)
        else:
            found.append(argument)
    return found

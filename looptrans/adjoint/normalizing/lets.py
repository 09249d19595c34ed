"""Integer scalars of a listing replaced by the index expressions they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from looptrans.adjoint.normalizing.given_numbers import with_given_numbers_put_in
from looptrans.ir.condition import Condition, compared, with_operands
from looptrans.ir.index import Index, Let, children, lets, opaque_terms, plain, rebuild, variables
from looptrans.ir.program import Assign, Atomic, BlockReduce, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import (
    access_changed,
    condition_changed,
    indices_changed,
    range_changed,
    replaced,
    rewritten,
    value_changed,
)
from looptrans.ir.value import (
    Access,
    Binary,
    Const,
    Generator,
    IndexValue,
    Range,
    Read,
    Reduce,
    Value,
    reductions,
    walk_value,
)
from looptrans.ir.walk import accesses, assignments, nodes, placed, read_by, sets_only, written


def cell_without_lets(access: Access) -> Access:
    """Return a cell with integer scalars replaced by what they stand for."""
    return access_changed(access, plain)


def value_without_lets(value: Value) -> Value:
    """Return a value with integer scalars replaced by what they stand for."""
    return value_changed(value, plain)


def condition_without_lets(condition: Condition) -> Condition:
    """Return a condition with integer scalars replaced by what they stand for."""
    return condition_changed(condition, plain)


def program_without_lets(program: Program) -> Program:
    """Return a program whose guards and ranges say what rows they hold for.

    c = i + N - M                           for j in range(i + N - M + 1): l = l + …
    for j in range(c + 1): l = l + …   ->

    Statements whose numbers nothing reads any more are left out.
    """
    body = rewritten(program.body, _without_lets)
    if body == program.body:
        return program
    program = replace(program, body=body)
    return _without(program, unread_integers(program) - _named(program))


def _named(program: Program) -> set[str]:
    """Return the integer scalars that indices still name."""
    found: set[str] = set()
    for place in placed(program):
        indices = [end for loop in place.loops for end in loop.range.ends]
        conditions = list(place.conditions)
        for relation in accesses(place.node):
            indices += relation.access.indices
            for g in relation.generators:
                indices += [g.range.start, g.range.stop]
                conditions.append(g.condition)
        indices += [index for condition in conditions for index in compared(condition)]
        found |= {each.name for index in indices for each in lets(index)}
    return found


def with_indices_put_in(program: Program) -> Program:
    """Return a program in which what reads an integer scalar reads the index it stands for.

        d = i - j                               d = i - j
        s = Q[i] * K[j] - slope * d      ->     s = Q[i] * K[j] - slope * (i - j)

    Every statement stays where it was.
    """
    program = replace(program, body=indices_changed(program.body, plain))
    once = _set_once(program)
    if not once:
        return program
    taken = written(program)
    given = {a.name for a in program.arrays if a.element == "int" and a.role == "input"}
    body = _with_numbers(program.body, once, frozenset(given - taken), {})
    return replace(program, body=body)


def _set_once(program: Program) -> frozenset[str]:
    """Return the integer scalars that one statement sets, and nothing but that one."""
    found: dict[str, list[bool]] = {}
    for node in assignments(program.body):
        for target in node.targets:
            found.setdefault(target.array, []).append(len(node.targets) == 1)
    integers = {a.name for a in program.arrays if a.element == "int" and a.role == "local"}
    integers = {a.name for a in program.arrays if a.name in integers and not a.rank}
    return frozenset(name for name in integers if found.get(name) == [True])


def _with_numbers(
    body: tuple[Node, ...],
    once: frozenset[str],
    given: frozenset[str],
    known: Mapping[str, Value],
) -> tuple[Node, ...]:
    """Return a block in which what reads a scalar behind the statement that sets it has its value.

    Args:
        body: The block.
        once: The scalars that are set once.
        given: The integer arrays that nothing writes.
        known: What those stand for that were set before, in this iteration of all loops around.
    """
    here = dict(known)
    found: list[Node] = []
    for node in body:
        new: Node = node
        match node:
            case Assign(targets=targets):
                values = tuple(_number(value, here) for value in node.values)
                new = replace(node, values=values)
                if targets[0].array in once and _is_of_indices(values[0], given):
                    here[targets[0].array] = values[0]
            case If():
                condition = with_operands(node.condition, value=lambda v: _number(v, here))
                then, other = (
                    _with_numbers(b, once, given, here) for b in (node.body, node.orelse)
                )
                new = replace(node, condition=condition, body=then, orelse=other)
            case Loop(variable):
                inside = {name: v for name, v in here.items() if variable not in _variables(v)}
                new = replace(node, body=_with_numbers(node.body, once, given, inside))
            case Atomic() | BlockReduce():
                new = replace(node, body=_with_numbers(node.body, once, given, here))
            case _:
                pass
        found.append(new)
    return tuple(found)


def _number(value: Value, known: Mapping[str, Value]) -> Value:
    """Return a value with scalars replaced by what they stand for."""
    bound = {g.variable for p in reductions(value) for g in p.generators}

    def change(part: Value) -> Value | None:
        match part:
            case Read(Access(name, ())) if name in known and not bound & _variables(known[name]):
                return known[name]
            case _:
                return None

    return replaced(value, change)


def _is_of_indices(value: Value, given: frozenset[str]) -> bool:
    """Tell whether a value is made of indices and of integers that are given alone."""
    match value:
        case IndexValue():
            return True
        case Const(number):
            return isinstance(number, int)
        case Read(access):
            return access.array in given and not access.rank
        case Binary(_, left, right):
            return _is_of_indices(left, given) and _is_of_indices(right, given)
        case _:
            return False


def _variables(value: Value) -> set[str]:
    """Return the variables that a value hangs on."""
    found: set[str] = set()
    for part in walk_value(value):
        match part:
            case IndexValue(index):
                found |= {*variables(index)}
            case Read(access):
                found |= access.variables
            case _:
                pass
    return found


def unread_integers(program: Program) -> frozenset[str]:
    """Return the integer scalars that are set in vain: nothing reads them but others of these."""
    integers = {
        array.name
        for array in program.arrays
        if array.element == "int" and array.role == "local" and not array.rank
    }
    unread: frozenset[str] = frozenset()
    while True:
        read = {*program.outputs}
        for node in (n for n in nodes(program.body) if isinstance(n, Assign | If)):
            if not sets_only(node, unread):
                read |= read_by(node)
        if unread == integers - read:
            return unread
        unread = frozenset(integers - read)


def program_of_indices(program: Program) -> Program:
    """Return a program that reads no integer scalar which stands for an index expression.

        lo = max(0, i - W)
        for j in range(lo, N): …    ->    for j in range(max(0, i - W), N): …

    Their statements are left out where nothing else reads them.
    """
    program = with_indices_put_in(program)
    return _without(program, unread_integers(program))


def _without(program: Program, unread: frozenset[str]) -> Program:
    """Return a program without what sets integer scalars that nothing reads, and loops around."""

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Loop(body=()) | If(label=None, body=(), orelse=()):
                return ()
            case _:
                return () if sets_only(node, unread) else (node,)

    return replace(program, body=rewritten(program.body, change))


def with_sizes_put_in(program: Program) -> Program:
    """Return a program without scalars that stand for the same number of sizes throughout.

        D = E // H
        for d in range(D): …    ->    for d in range(E // H): …

    A kernel is told them before it runs, and need not work them out.
    """
    numbers: dict[str, Index] = {}
    once = _set_once(program)
    for node in program.body:
        match node:
            case Assign(targets=(Access(name),), values=(value,)) if name in once:
                found = _number(value, {n: IndexValue(i) for n, i in numbers.items()})
                index = plain(found.index) if isinstance(found, IndexValue) else None
                if index is not None and not variables(index) and not opaque_terms(index):
                    numbers[name] = index
    numbers = {name: index for name, index in numbers.items() if name not in program.outputs}
    if not numbers:
        return with_given_numbers_put_in(program)

    def put_in(index: Index) -> Index:
        if isinstance(index, Let) and index.name in numbers:
            return numbers[index.name]
        parts = children(index)
        return rebuild(index, tuple(map(put_in, parts))) if parts else index

    def as_number(part: Value) -> Value | None:
        match part:
            case Read(Access(name, ())) if name in numbers:
                return IndexValue(numbers[name])
            case _:
                return None

    def value_put_in(value: Value) -> Value:
        return replaced(value_changed(value, put_in), as_number)

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign(targets=(Access(name),)) if name in numbers:
                return ()
            case Assign():
                targets = tuple(access_changed(target, put_in) for target in node.targets)
                values = tuple(map(value_put_in, node.values))
                return (replace(node, targets=targets, values=values),)
            case If():
                condition = condition_changed(node.condition, put_in)
                condition = with_operands(condition, value=lambda v: replaced(v, as_number))
                return (replace(node, condition=condition),)
            case Loop():
                return (replace(node, range=range_changed(node.range, put_in)),)
            case Declaration(_, creation):
                shape = tuple(map(put_in, creation.shape))
                return (replace(node, creation=replace(creation, shape=shape)),)
            case _:
                return (node,)

    arrays = tuple(a for a in program.arrays if a.name not in numbers)
    contracts = tuple(
        replace(c, condition=condition_changed(c.condition, put_in)) for c in program.contracts
    )
    body = rewritten(program.body, change)
    sized = replace(program, arrays=arrays, body=body, contracts=contracts)
    return with_given_numbers_put_in(sized)


def _without_lets(node: Node) -> tuple[Node, ...]:
    match node:
        case If():
            return (replace(node, condition=_guard_without_lets(node.condition)),)
        case Loop():
            return (replace(node, range=_range_without_lets(node.range)),)
        case Assign():
            return (replace(node, values=tuple(map(_sums_without_lets, node.values))),)
        case _:
            return (node,)


def _guard_without_lets(condition: Condition) -> Condition:
    if any(_moves(index) for index in compared(condition)):
        return condition_without_lets(condition)
    return condition


def _range_without_lets(ends: Range) -> Range:
    if _moves(ends.start) or _moves(ends.stop):
        return range_changed(ends, plain)
    return ends


def _sums_without_lets(value: Value) -> Value:
    """Return a value whose sums say what rows they hold for."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        generators = tuple(
            Generator(g.variable, _range_without_lets(g.range), _guard_without_lets(g.condition))
            for g in part.generators
        )
        return replace(part, generators=generators, body=replaced(part.body, change))

    return replaced(value, change)


def _moves(index: Index) -> bool:
    """Tell whether an integer scalar in an index is another one in each iteration of a loop."""
    return any(variables(each.value) for each in lets(index))

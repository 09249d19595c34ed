"""Truth values that have a name, put in where they are tested.

    seen = j <= i and j > i - W
    s = x if seen else -inf         ->    s = x if j <= i and j > i - W else -inf

So a mask has one form whether it has a name or not, and what it says of indices bounds loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from looptrans.adjoint.normalizing.lets import value_without_lets
from looptrans.ir.condition import Condition, Data, is_data_dependent, with_tests
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import Holds, Read, Reduce, Select, Value, arrays_read, condition_of
from looptrans.ir.walk import assignments, read_in, sets_only

Known = Mapping[str, Value]


def with_tests_put_in(program: Program, *, keep: bool = True) -> Program:
    """Return a program that means the same, where tests are written out where they are made.

    A name is put in that is set from what the program does not change, and read in the same block
    behind that, or inside of it, where nothing has set it again.

    Args:
        program: The program.
        keep: Whether the statement stays although nothing reads the name any more.
    """
    written = _set_in(program.body)
    named = {a.name for a in program.arrays if a.element == "bool" and not a.rank} & written
    if not named:
        return program
    made = replace(program, body=_block(program.body, {}, named, written))
    if keep:
        return made
    gone = named - read_in(made.body) - {*program.outputs}

    def change(node: Node) -> tuple[Node, ...]:
        return () if sets_only(node, gone) else (node,)

    return replace(made, body=rewritten(made.body, change))


def _block(
    body: tuple[Node, ...], known: Known, named: set[str], written: set[str]
) -> tuple[Node, ...]:
    here = dict(known)
    found: list[Node] = []
    for node in body:
        match node:
            case Assign(_, (*targets,), (*values,)):
                made = tuple(_put_in(value, here) for value in values)
                found.append(replace(node, values=made))
                for target in targets:
                    here.pop(target.array, None)
                name = targets[0].array
                if len(targets) == 1 and name in named and not arrays_read(made[0]) & written:
                    here[name] = value_without_lets(made[0])
            case If():
                condition = _tested(node.condition, here)
                label = node.label if is_data_dependent(condition) else None
                then = _block(node.body, here, named, written)
                other = _block(node.orelse, here, named, written)
                guard = replace(node, condition=condition, label=label, body=then, orelse=other)
                found.append(guard)
                here = _less(here, _set_in((node,)))
            case Loop() | Atomic() | BlockReduce():
                # An iteration before may have set it.
                here = _less(here, _set_in((node,)))
                found.append(replace(node, body=_block(node.body, here, named, written)))
            case _:
                found.append(node)
    return tuple(found)


def _set_in(body: tuple[Node, ...]) -> set[str]:
    assigned = assignments(body)
    return {target.array for node in assigned for target in node.targets}


def _less(known: Known, names: set[str]) -> dict[str, Value]:
    return {name: value for name, value in known.items() if name not in names}


def _put_in(value: Value, known: Known) -> Value:
    """Return a value with tests written out, in the conditions of choices and as truth values."""

    def change(part: Value) -> Value | None:
        match part:
            case Read(access) if access.array in known:
                return known[access.array]
            case Holds(condition):
                return Holds(_tested(condition, known))
            case Select(condition, chosen, otherwise):
                tested = _tested(condition, known)
                return Select(tested, _put_in(chosen, known), _put_in(otherwise, known))
            case Reduce(function, generators, body):
                bound = tuple(replace(g, condition=_tested(g.condition, known)) for g in generators)
                return Reduce(function, bound, _put_in(body, known))
            case _:
                return None

    return replaced(value, change)


def _tested(condition: Condition, known: Known) -> Condition:
    def each(test: Condition) -> Condition:
        match test:
            case Data(Read(access)) if access.array in known:
                return condition_of(known[access.array])
            case Data(value):
                return Data(_put_in(value, known))
            case _:
                return test

    return with_tests(condition, each)

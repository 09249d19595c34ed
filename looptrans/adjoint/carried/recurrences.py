"""Recurrences: what iterations hand on through an array, opened for reading and closed again.

    for t: h[t + 1] = a[t] * h[t] + x[t]      ->      for t: h[t + 1] = a[t] * before[t] + x[t]

Opened, the array comes in under another name and is returned: nothing is carried any more. The
backward pass of that returns what `before` receives, from what comes in for `h`. As both are one
array the first is the second, which is true where the loop runs the other way:

    for t downwards: dh[t] = a[t] * (dh[t + 1] + what else reads h[t + 1])

It is shown by the dependences that each element of both is set before anything reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from looptrans.adjoint.written.printing import shape_text
from looptrans.algebra.positional.values import add
from looptrans.analysis.api import components, dependences, is_written_once
from looptrans.analysis.kept_flow import flow_of
from looptrans.frontend import parse
from looptrans.ir.condition import with_operands
from looptrans.ir.listing import listing
from looptrans.ir.program import Array, Assign, If, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, values_replaced
from looptrans.ir.source import Source
from looptrans.ir.value import Access, Read, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, placed
from looptrans.transforms.editing.naming import fresh_name


@dataclass(frozen=True, slots=True)
class Opened:
    """A listing whose recurrences are open.

    Attributes:
        listing: The listing.
        program: The same, with each array that is carried coming in for what reads it carried.
        before: For each such array, what it is called where it comes in.
    """

    listing: Program
    program: Program
    before: Mapping[str, str]

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        names = " and ".join(sorted(self.before))
        law = f"what an iteration reads of {names} is what it holds in the end"
        reason = "every element is set once, and none after it was read"
        return Certificate("storage", law, "legal", reason)


def opened(program: Program) -> Opened | None:
    """Open the recurrences of a listing, if it has any through arrays that are set once.

    Args:
        program: The listing.
    """
    reads = _carried(program)
    before: dict[str, str] = {}
    for array in dict.fromkeys(array for _, array in sorted(reads)):
        before[array] = fresh_name(program, f"{array}_before", before.values())
    if not before:
        return None

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign | If):
            return (node,)
        own = {array: before[array] for label, array in reads if label == node.label}

        def incoming(part: Value) -> Value | None:
            if not isinstance(part, Read) or part.access.array not in own:
                return None
            return Read(Access(own[part.access.array], part.access.subscripts))

        return _with_values(incoming, node)

    body = rewritten(program.body, change)
    arrays = tuple(incoming(program.array(name), before[name]) for name in before)
    changed = replace(
        program,
        body=body,
        arrays=(*program.arrays, *arrays),
        arguments=(*program.arguments, *before.values()),
        outputs=tuple(dict.fromkeys((*program.outputs, *before))),
    )
    return Opened(program, again(changed), before)


def _carried(program: Program) -> set[tuple[str, str]]:
    """Return the statements that read what an earlier iteration has set in an array.

    Of each the label and the array: every cell is set once, and none after it is read there. Those
    in a cycle come first; where there is none, such as with delays, all of them.
    """
    values = flow_of(program)
    carried = [
        each
        for each in values.dependences
        if each.carried_by is not None and _may_be_open(program.array(each.array))
    ]
    if values.unknown is not None or not carried:
        return set()
    late = dependences(program, bases=("memory",), kinds=("anti",), witnesses=False)
    if late.unknown is not None:
        return set()
    early = {(each.source, each.array) for each in late.dependences}
    if early.issuperset((each.sink, each.array) for each in carried):
        return set()
    parts = components(program)
    if parts.unknown is not None:
        return set()
    part = {label: n for n, each in enumerate(parts.components) for label in each.statements}
    around = [each for each in carried if part[each.source] == part[each.sink]]
    found = {(each.sink, each.array) for each in around or carried}
    once = {name for name in {n for _, n in found - early} if is_written_once(program, name)}
    # In the nests where it is made, everything else reads it as it comes in, too.
    nests = {
        (place.position[0], relation.access.array)
        for place in placed(program)
        for relation in accesses(place.node)
        if relation.is_write or (place.label, relation.access.array) in found
    }
    return {
        (place.label, relation.access.array)
        for place in placed(program)
        for relation in accesses(place.node)
        if not relation.is_write
        and relation.access.array in once
        and (place.position[0], relation.access.array) in nests
        and (place.label, relation.access.array) not in early
    }


def _may_be_open(array: Array) -> bool:
    """Tell whether an array could come in from outside as well."""
    is_own = array.role == "local" and array.element == "float"
    return is_own and array.rank > 0 and None not in array.shape


def incoming(array: Array, name: str) -> Array:
    """Return an array as an argument of another name."""
    shape = array.extents
    annotation = f'Float[Array, "{shape_text(shape)}"]'
    return Array(name, array.rank, array.element, "input", array.shape, annotation=annotation)


def again(program: Program) -> Program:
    """Return a listing as it is read from its text."""
    return parse(Source(f"<{program.name}>", listing(program)))


@dataclass(frozen=True, slots=True)
class Tied:
    """What comes in where recurrences are open, and what it is.

    Attributes:
        seen: The listing, open.
        gradients: For each array that is carried, the gradient that comes back to it.
        incoming: What comes in for it.
        of: The outputs for which something comes in from outside, too.
    """

    seen: Opened
    gradients: Mapping[str, str]
    incoming: Mapping[str, str]
    of: frozenset[str]

    @property
    def carried(self) -> frozenset[str]:
        """The gradients that are carried."""
        return frozenset(self.gradients.values())

    def closed(self, node: Node) -> Node:
        """Let what comes in be what is there: the array itself, and its gradient."""
        whole = {before: a for a, before in self.seen.before.items()}
        given = {name: a for a, name in self.incoming.items()}

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read):
                return None
            name, cell = part.access.array, part.access.subscripts
            if name in whole:
                return Read(Access(whole[name], cell))
            if name not in given:
                return None
            own = Read(Access(self.gradients[given[name]], cell))
            return add(part, own) if given[name] in self.of else own

        (one,) = rewritten((node,), partial(_with_values, change))
        return one

    def with_arrays(self, program: Program) -> Program:
        """Return a backward listing that is given the arrays themselves."""
        known = {array.name for array in program.arrays}
        given = [n for n in self.seen.before if n not in known]
        arrays = tuple(incoming(self.seen.listing.array(name), name) for name in given)
        arguments = (*program.arguments, *given)
        return again(replace(program, arrays=(*program.arrays, *arrays), arguments=arguments))


def _with_values(change: Callable[[Value], Value | None], node: Node) -> tuple[Node, ...]:
    """Return a statement, or a guard, with parts of its values replaced."""
    match node:
        case Assign():
            return (values_replaced(node, change),)
        case If():
            tested = with_operands(node.condition, value=lambda v: replaced(v, change))
            return (replace(node, condition=tested),)
        case _:
            return (node,)

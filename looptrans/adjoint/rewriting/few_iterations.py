"""Loops over the few numbers that others read an array by, written out, with an array for each.

    for a in range(4):                              for u in range(H): g0[u] = W[0, u] * x
        for u in range(H):                          …
            g[a, u] = W[a, u] * x           ->      for u in range(H): g3[u] = W[3, u] * x
    for u in range(H):                              for u in range(H):
        h[u] = tanh(g[3, u]) * g[0, u]                  h[u] = tanh(g3[u]) * g0[u]

So the gates of an LSTM stand in one array: what reads one of them waits for it alone.

    for x in range(2):                         q0 = …; q1 = …
        q[x] = …; v[x] = …           ->        for x in range(2): v[x] = …
    … q[0] * c - q[1] * s …                    … q0 * c - q1 * s …

What such a loop does besides, with nothing to do with the array, stays a loop, behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.carried.states_kept import FEW
from looptrans.ir.index import Index, Int, Var, opaque_terms
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, assignments, live_out, nodes, placed, touched
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.substitute import substitute_variable


@dataclass(frozen=True, slots=True)
class FewIterations:
    """A program with such loops written out.

    Attributes:
        program: The program afterwards.
        loops: Their variables.
        array: What is several arrays now.
    """

    program: Program
    loops: tuple[str, ...]
    array: str

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"write out {listed(self.loops)}, with an array for each {self.array}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        reason = f"{self.array} is found by a number or by one of these loops, wherever it stands"
        return Certificate("storage", law, "legal", reason)


def with_few_iterations(program: Program) -> FewIterations | None:
    """Write out the loops over a few numbers by which an array of the listing is read elsewhere.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such array.
    """
    seen = live_out(program)
    kinds = {array.name: array.element for array in program.arrays}
    for node in program.body:
        if not isinstance(node, Declaration) or node.array in seen:
            continue
        # Subscripts may read integers, and scalars have no first values.
        if kinds[node.array] == "float" and len(node.creation.shape) > 1:
            for place, extent in enumerate(node.creation.shape):
                if isinstance(extent, Int) and 1 < extent.value <= FEW:
                    loops = _loops_over(program, node.array, place, extent)
                    if loops:
                        return _written_out(program, node, place, extent.value, loops)
    return None


def _loops_over(program: Program, array: str, place: int, extent: Int) -> tuple[str, ...]:
    """Return the loops that an array is found by in some places, and by numbers in the others."""
    found: dict[str, None] = {}
    numbers = False
    for each in placed(program):
        if not isinstance(each.node, Assign | If):
            continue
        ranges = {loop.variable: loop for loop in each.loops}
        for relation in accesses(each.node):
            if relation.access.array != array:
                continue
            subscripts = relation.access.subscripts
            match subscripts[place] if len(subscripts) > place else None:
                case Int(value) if 0 <= value < extent.value:
                    numbers = True
                case Var(name) if name in ranges and _counts(ranges[name], extent):
                    found[name] = None
                case _:
                    return ()
    every = [n for n in nodes(program.body) if isinstance(n, Loop) and n.variable in found]
    return tuple(found) if numbers and all(_counts(loop, extent) for loop in every) else ()


def _counts(loop: Loop, extent: Index) -> bool:
    bounds = loop.range
    plain = loop.is_plain
    return plain and (bounds.start, bounds.stop, bounds.step) == (Int(0), extent, 1)


def _written_out(
    program: Program, made: Declaration, place: int, count: int, loops: tuple[str, ...]
) -> FewIterations:
    names: list[str] = []
    for number in range(count):
        names.append(fresh_name(program, f"{made.array}{number}", names))

    def out(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Loop) or node.variable not in loops:
            return (node,)
        own, others = _with_array(node, made.array)
        return tuple(
            substitute_variable(inner, {node.variable: Int(number)})
            for number in range(count)
            for inner in (rewritten(own, unlabelled) if number else own)
        ) + ((replace(node, body=others),) if others else ())

    def named(access: Access) -> Access:
        if access.array != made.array:
            return access
        number = access.subscripts[place]
        assert isinstance(number, Int)
        rest = (*access.subscripts[:place], *access.subscripts[place + 1 :])
        return Access(names[number.value], rest)

    body = with_accesses(rewritten(program.body, out), named)
    shape = (*made.creation.shape[:place], *made.creation.shape[place + 1 :])
    declared = tuple(Declaration(name, replace(made.creation, shape=shape)) for name in names)
    body = tuple(n for node in body for n in (declared if node == made else (node,)))
    array = program.array(made.array)
    arrays = tuple(a for a in program.arrays if a != array)
    arrays += tuple(replace(array, name=name, annotation=None) for name in names)
    return FewIterations(again(replace(program, body=body, arrays=arrays)), loops, made.array)


def _with_array(loop: Loop, array: str) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return what a loop does in connection with an array, and what has nothing to do with that.

    Neither writes what the other touches, so that they may be done one after the other.
    """
    if not all(isinstance(node, Assign) or _is_plain(node) for node in nodes(loop.body)):
        return loop.body, ()
    rest = assignments(loop.body)
    own = [node for node in rest if array in touched((node,))]
    for one in own:
        rest = [node for node in rest if node not in own]
        own += [node for node in rest if _meet(one, node)]
    if not own or len(own) == len(assignments(loop.body)):
        return loop.body, ()
    kept = {node.label for node in own}

    def only(mine: bool) -> tuple[Node, ...]:
        def change(node: Node) -> tuple[Node, ...]:
            if isinstance(node, Assign):
                return (node,) if (node.label in kept) is mine else ()
            return (node,) if not isinstance(node, Loop) or node.body else ()

        return rewritten(loop.body, change)

    return only(True), only(False)


def _is_plain(node: Node) -> bool:
    """Tell whether a node is a loop of so many iterations, whatever is read in them."""
    if not isinstance(node, Loop) or node.execution != "sequential" or node.private:
        return False
    return not any(opaque_terms(bound) for bound in node.range.ends)


def _meet(one: Assign, other: Assign) -> bool:
    """Tell whether one of two statements writes what the other touches."""
    written, its = ({t.array for t in node.targets} for node in (one, other))
    return bool(written & touched((other,)) or its & touched((one,)))


def unlabelled(node: Node) -> tuple[Node, ...]:
    """Return a statement without the label that another one has, so that it is given its own."""
    return (replace(node, comment="", labelled=False) if isinstance(node, Assign) else node,)

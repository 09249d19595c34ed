"""Folds that end with a term of their own, begun with it.

    m = -inf                                     m = s
    for j in range(0, N):                        for j in range(0, N):
        m = max(m, S[i, j])            ->            m = max(m, S[i, j])
    m = max(m, s)
    for j in range(0, N): …                      for j in range(0, N): …

Nothing then stands between the loop and the next pass over its range, and both may be one. This is
how a sink is put behind the scores that it stands beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation, folded
from looptrans.algebra.positional.values import is_number
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Var
from looptrans.ir.listing import access_text
from looptrans.ir.monoids import OF_NOTHING, Folding
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.value import Access, Const, Read
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, live_out, nodes, read_in, touched, written_in
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.naming import fresh_label
from looptrans.transforms.editing.tree import statements_in


@dataclass(frozen=True, slots=True)
class Ahead:
    """A program whose folds begin with what was their last term.

    Attributes:
        program: The program afterwards.
        folds: What they fold into.
    """

    program: Program
    folds: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"begin {listed(self.folds)} with the term that stood behind the loop"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "terms may be folded in another order"
        reason = "the loop does nothing else with it, and changes nothing that the term is made of"
        return Certificate("algebra", law, "legal", reason)


def with_last_terms_ahead(program: Program) -> Ahead | None:
    """Let folds begin with a term that stands behind their loop, where it is not the last pass.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where no such term stands behind a loop.
    """
    for wanted in (program, _with_total_named(program)):
        found = None if wanted is None else _ahead(wanted)
        if found is not None:
            return found
    return None


def _ahead(program: Program) -> Ahead | None:
    folds: list[str] = []

    def block(body: Sequence[Node], around: tuple[str, ...]) -> tuple[Node, ...]:
        found = list[Node](body)
        for number, node in enumerate(found):
            if isinstance(node, Loop):
                found[number] = replace(node, body=block(node.body, (*around, node.variable)))
            elif isinstance(node, If):
                inside = (block(node.body, around), block(node.orelse, around))
                found[number] = replace(node, body=inside[0], orelse=inside[1])
        while (place := next(_places(found), None)) is not None:
            number, at = place
            last = found.pop(at)
            assert isinstance(last, Assign)
            _begin(program, found, number, last, around)
            folds.append(last.targets[0].array)
        return tuple(found)

    after = replace(program, body=block(program.body, ()))
    return Ahead(after, tuple(dict.fromkeys(folds))) if folds else None


def _with_total_named(program: Program) -> Program | None:
    """Let one name for a fold and its last term be the fold's, where nothing else looks at that.

    z = l + exp(s - m)    ->    l = l + exp(s - m); z = l
    """
    label = fresh_label(program)
    found = False

    def block(body: Sequence[Node], around: tuple[str, ...]) -> tuple[Node, ...]:
        nonlocal found
        made: list[Node] = []
        for number, node in enumerate(body):
            if isinstance(node, Loop):
                made.append(replace(node, body=block(node.body, (*around, node.variable))))
                continue
            fold = None if found else _of_another(program, body[:number], node, around)
            if fold is None or not isinstance(node, Assign):
                made.append(node)
                continue
            found = True
            made.append(replace(node, targets=(fold,)))
            made.append(Assign(label, node.targets, (Read(fold),)))
        return tuple(made)

    after = replace(program, body=block(program.body, ()))
    return after if found else None


def _of_another(
    program: Program, before: Sequence[Node], node: Node, around: tuple[str, ...]
) -> Access | None:
    """Return the fold of a loop whose last term a statement adds, and that nothing else reads."""
    if not isinstance(node, Assign) or len(node.targets) != 1 or len(node.values) != 1:
        return None
    own = {relation.access for relation in accesses(node) if not relation.is_write}
    for access in sorted(own, key=access_text):
        fold = accumulation(access, node.values[0])
        if fold is None or fold[2] != ALWAYS or access.array == node.targets[0].array:
            continue
        loops = [each for each in before if isinstance(each, Loop)]
        folding = [each for each in loops if _folds((each,), access, fold[0])]
        known = {node.label, *statements_in(tuple(folding))}
        reads = [s for s in sites_of(program, access.array) if not s.relation.is_write]
        is_free = access.array not in live_out(program)
        is_own = set(around) <= _own(access) or any(_sets(each, access) for each in before)
        if folding and is_free and is_own and all(site.place.label in known for site in reads):
            return access
    return None


def _sets(node: Node, target: Access) -> bool:
    """Tell whether a statement sets a cell, whatever was there."""
    if not isinstance(node, Assign) or node.targets != (target,):
        return False
    return target.array not in read_in((node,))


def _own(target: Access) -> set[str]:
    """Return the loops of which each iteration has a cell of its own."""
    return {index.name for index in target.subscripts if isinstance(index, Var)}


def _places(body: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Yield where loops stand, and last terms of their folds that may stand before them."""
    for number, loop in enumerate(body):
        if not isinstance(loop, Loop) or loop.execution != "sequential":
            continue
        for at in range(number + 1, len(body)):
            node = body[at]
            if not isinstance(node, Assign):
                break
            fold = folded(node)
            if fold is None or not _folds((loop,), node.targets[0], fold[0]):
                continue
            beside = tuple(body[number + 1 : at])
            name = node.targets[0].array
            made_of = read_in((node,)) - {name}
            passes = [each.range for each in body[at + 1 :] if isinstance(each, Loop)]
            if (
                name not in touched(beside)
                and not made_of & written_in((loop, *beside))
                and loop.range in passes
                and all(_has_begun(body[:number], each) for each in made_of)
            ):
                yield number, at


def _has_begun(before: Sequence[Node], name: str) -> bool:
    """Tell whether an array is no fold of loops, or one that begins with a value.

    Where m begins with -inf, exp(s - m) is infinite until m has seen something.
    """
    setting = [node for node in before if name in written_in((node,))]
    is_fold = [isinstance(node, Loop) for node in setting]
    if not any(is_fold):
        return True
    starts = setting[: is_fold.index(True)]
    last = starts[-1] if starts else None
    return isinstance(last, Assign) and not all(isinstance(v, Const) for v in last.values)


def _folds(body: tuple[Node, ...], target: Access, op: Folding) -> bool:
    """Tell whether statements fold into a cell, and do nothing else with its array."""
    found = False
    for node in nodes(body):
        if not isinstance(node, Assign | If):
            continue
        mine = [each for each in accesses(node) if each.access.array == target.array]
        if not mine:
            continue
        if not isinstance(node, Assign) or node.targets != (target,) or len(node.values) != 1:
            return False
        own = accumulation(target, node.values[0])
        if own is None or own[0] != op:
            return False
        found = True
    return found


def _begin(
    program: Program, body: list[Node], number: int, last: Assign, around: tuple[str, ...]
) -> None:
    """Let the fold of a loop begin with a term, in the place of nothing where that stands there."""
    (target,) = last.targets
    fold = folded(last)
    assert fold is not None
    nothing = OF_NOTHING[fold[0]]
    begun = replace(last, values=(fold[1],), augmented=False)
    for at in reversed(range(number)):
        node = body[at]
        if (
            isinstance(node, Assign)
            and node.targets == (target,)
            and all(is_number(value, nothing) for value in node.values)
        ):
            del body[at]
            body.insert(number - 1, begun)
            return
        if target.array in touched((node,)):
            break
    else:
        first = next(iter(sites_of(program, target.array)), None)
        inside = first is not None and first.place.label in statements_in((body[number],))
        if inside and _is_made_of(program, target, nothing, around):
            last = begun
    body.insert(number, last)


def _is_made_of(program: Program, target: Access, nothing: float, around: tuple[str, ...]) -> bool:
    """Tell whether each iteration of the loops around has a cell, and all begin with a number.

    No statement sets the cell of another iteration.
    """
    writes = (site for site in sites_of(program, target.array) if site.relation.is_write)
    if any(site.relation.access != target for site in writes):
        return False
    for node in program.body:
        if isinstance(node, Declaration) and node.array == target.array:
            creation = node.creation
            zeros = creation.function == "zeros" and nothing == 0
            full = creation.fill is not None and is_number(creation.fill, nothing)
            return (zeros or full) and set(around) <= _own(target)
    return False

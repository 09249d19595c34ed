"""Arrays that passes overwrite one after the other, with a name for what each pass makes.

for j: W[j] = q @ k[j]                   for j: W1[j] = q @ k[j]
       m = max(m, W[j])                         m = max(m, W1[j])
for j: W[j] = exp(W[j] - m)       ->     for j: W2[j] = exp(W1[j] - m)
       l = l + W[j]                             l = l + W2[j]
for j: W[j] = W[j] / l                   for j: W[j] = W2[j] / l

What is only made on the way has not to be stored where the result belongs, nor rounded to its type:
it can be worked out again where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.adjoint.rewriting.webs import renamed
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.index import Var
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.step import same_names
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.accesses import AccessSite, listed, sites_of
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import Position, is_node, node_at
from looptrans.transforms.judging.check import check_storage

# By the label of a statement: which version it reads, and which one it makes.
_Versions = dict[str, tuple[int, int]]


def overwritten(program: Program) -> Iterator[str]:
    """Yield the arrays of the program's own that several passes write."""
    declared = [node.array for node in program.body if isinstance(node, Declaration)]
    for array in program.arrays:
        if array.rank and declared.count(array.name) == 1 and _versions(program, array.name):
            yield array.name


def versions(program: Program, array: str) -> DerivationStep:
    """Give what passes make of an array on the way names of their own.

    Args:
        program: The program.
        array: The array, which the program creates.

    Raises:
        NotDone: One pass writes it, or a later one does not overwrite all that is read behind it.
    """
    found = _versions(program, array) if array in set(overwritten(program)) else {}
    if not found:
        raise NotDone(f"no passes overwrite {array} one after the other")
    last = max(version for pair in found.values() for version in pair)
    names: list[str] = []
    for number in range(1, last):
        names.append(fresh_name(program, f"{array}{number}", names))
    called = (*names, array)

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Declaration() if node.array == array:
                return (*(replace(node, array=name) for name in names), node)
            case Assign() | If() if node.label in found:
                reads, writes = (called[version - 1] for version in found[node.label])
                return (renamed(node, array, reads, writes),)
            case _:
                return (node,)

    own = program.array(array)
    after = replace(
        program,
        body=rewritten(program.body, change),
        arrays=(
            *program.arrays,
            *(replace(own, name=name, role="local", annotation=None) for name in names),
        ),
    )
    after, images = finished(after, same_names(program, after))
    verdict = check_storage(program, after, images, created=True, tried=False)
    if verdict.decision != "legal":
        raise NotDone(f"{array} cannot have a name for each pass", verdict.decision)
    law = "each read gets what it got before, and each result what was written to it last"
    return DerivationStep(
        f"call what is made of {array} on the way {listed(names)}",
        "versions",
        (array,),
        program,
        done(after),
        (Certificate("storage", law, "legal", verdict.reason),),
    )


def _versions(program: Program, array: str) -> _Versions:
    """Return which versions statements read and write; nothing where there is one."""
    found: _Versions = {}
    version = 0
    for position, sites in _passes(sites_of(program, array)):
        writes = [site for site in sites if site.relation.is_write]
        if writes and not _is_pass(program, position, writes):
            return {}
        for site in sites:
            if writes and site.place.label == writes[0].place.label:
                found.setdefault(site.place.label, (max(version, 1), version + 1))
            else:
                passed = bool(writes) and writes[0].place.label in found
                now = max(version + passed, 1)
                found.setdefault(site.place.label, (now, now))
        version += bool(writes)
    return found if version > 1 else {}


def _passes(sites: tuple[AccessSite, ...]) -> Iterator[tuple[Position, list[AccessSite]]]:
    """Yield the nodes of one block that hold all accesses, with those that each holds."""
    places = [site.place.position for site in sites]
    depth = 0
    while len({place[: depth + 1] for place in places}) == 1:
        if depth + 1 >= min(map(len, places)):
            return
        depth += 1
    found: dict[Position, list[AccessSite]] = {}
    for site in sites:
        found.setdefault(site.place.position[: depth + 1], []).append(site)
    yield from sorted(found.items())


def _is_pass(program: Program, position: Position, writes: list[AccessSite]) -> bool:
    """Tell whether there is a loop each iteration of which has elements of its own."""
    node = node_at(program, position) if is_node(program, position) else None
    return isinstance(node, Loop) and all(
        Var(node.variable) in site.access.indices for site in writes
    )

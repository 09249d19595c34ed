"""Two nests that work out the same sums made one: what both work out is worked out once."""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.equations.solving import replacing
from looptrans.algebra.positional.cells import condition_moved, range_moved, value_moved
from looptrans.derivation.joined.gathering import gathered, named, put, require_apart, require_sums
from looptrans.derivation.joined.nests import Nest, quotients_of, same_iterations, same_sums
from looptrans.derivation.one_loop.writing import reread
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.index import Arith, Var
from looptrans.ir.listing import condition_text
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.rewrite import indices_changed, replaced, with_accesses
from looptrans.ir.value import Access, Generator, Read, Reduce, Value, arrays_read
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import written_in
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.substitute import rename_variable, without_binders


def one_nest(program: Program, guest: str, host: str) -> DerivationStep:
    """Do what a nest does inside the loops of another one, and work out once what both work out.

        for i: for j: S = …; a[i] += f(S)          for j: for i: S = …
        for j: for i: T = …; b[j] += g(T)    ->                  a[i] += f(S); b[j] += g(S)

    Args:
        program: The program.
        guest: The label of a statement of the nest that goes.
        host: That of a statement of the nest that stays.

    Raises:
        NotDone: They do not have the same iterations, or one needs what the other writes.
    """
    mine, theirs = named(program, guest, host)
    names, count = same_sums(mine, theirs)
    if not count:
        raise NotDone("the two nests work out no sum in common")
    require_apart(program, mine, theirs)
    if not same_iterations(program, mine, theirs, names):
        raise NotDone("the two nests are not seen to have the same iterations")
    for nest in (mine, theirs):
        require_sums(program, nest)
    body = _inside(program, mine, theirs, names)
    once = _worked_out_twice(theirs, body)
    block = _without(theirs.block, once)
    # What is kept is called as what comes first in the listing is.
    order = [array.name for array in program.arrays]
    kept = {a: b for b, a in once.items() if order.index(b) < order.index(a)}
    merged = put(theirs.way, _renamed((*body, *block), kept))
    rest = list(program.body)
    rest[theirs.position] = merged
    del rest[mine.position]
    after = reread(replace(program, body=tuple(rest)))
    ranges = [condition_text(q.contract) for q in quotients_of(program, theirs)]
    loops = listed([loop.variable for loop in theirs.loops])
    arrays = gathered(program, mine)
    shown = (
        Certificate(
            "order",
            "both nests have the same iterations",
            "legal",
            "what the loops and guards of the one say follows from those of the other, and back",
            tuple(f"assert {text}" for text in ranges),
        ),
        Certificate(
            "storage",
            "a sum worked out once is the value that was worked out twice",
            "legal",
            f"{', '.join(f'{a} is {b}' for a, b in once.items())}: the same expression of the same "
            "values, and nothing it reads is written in the nest",
        ),
        Certificate(
            "rounding",
            f"{listed(arrays)} {'is' if len(arrays) == 1 else 'are'} added up in another order",
            "legal",
            "equal over the reals, not bit for bit: each is only added to, and read by nothing "
            "else in the nests or between them",
        ),
    )
    name = f"gather {listed(arrays)} in the loops {loops} too: {len(once)} values worked out once"
    return DerivationStep(name, "one nest", (guest, host), program, after, shown)


def _inside(program: Program, guest: Nest, host: Nest, names: dict[str, str]) -> tuple[Node, ...]:
    """Return what a nest does, in the variables of the other one."""
    loop = Loop("", host.loops[0].range, guest.block)
    taken = frozenset(h.variable for h in host.loops)
    loop = without_binders(program, loop, taken)
    # By way of names that nobody has, so that two may change places.
    for mine in names:
        loop = rename_variable(loop, mine, f"{mine}~")
    for mine, theirs in names.items():
        loop = rename_variable(loop, f"{mine}~", theirs)
    body = loop.body
    for quotient in quotients_of(program, host):
        of = Arith("//", Var(quotient.inner), quotient.divisor)
        body = indices_changed(body, replacing(of, Var(quotient.outer)))
    return body


def _worked_out_twice(host: Nest, guest: tuple[Node, ...]) -> dict[str, str]:
    """Return the scalars of a nest that the other one works out too, with what they are there."""
    changed = written_in((*guest, *host.block))
    known: dict[Value, str] = {}
    mine = Nest(0, (), guest).scalars
    for name, value in mine.items():
        known.setdefault(_canonical(value), name)
    once: dict[str, str] = {}
    for name, value in host.scalars.items():
        inner = _canonical(_with_names(value, once))
        if inner in known and not arrays_read(inner) & (changed - set(mine)):
            once[name] = known[inner]
    return once


def _with_names(value: Value, names: dict[str, str]) -> Value:
    def change(part: Value) -> Value | None:
        if isinstance(part, Read) and part.access.array in names:
            return Read(Access(names[part.access.array], part.access.subscripts))
        return None

    return replaced(value, change)


def _canonical(value: Value, depth: int = 0) -> Value:
    """Return a value whose sums run over variables called by how deep they stand."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        new = {g.variable: Var(f"~{depth + k}") for k, g in enumerate(part.generators)}
        generators = tuple(
            Generator(
                new[g.variable].name, range_moved(g.range, new), condition_moved(g.condition, new)
            )
            for g in part.generators
        )
        return Reduce(
            part.function, generators, _canonical(value_moved(part.body, new), depth + len(new))
        )

    return replaced(value, change)


def _without(block: tuple[Node, ...], once: dict[str, str]) -> tuple[Node, ...]:
    """Take out what sets scalars, and read others in their place."""
    kept = tuple(
        node for node in block if not (isinstance(node, Assign) and node.targets[0].array in once)
    )
    return _renamed(kept, once)


def _renamed(body: tuple[Node, ...], names: dict[str, str]) -> tuple[Node, ...]:
    return with_accesses(
        body, lambda access: Access(names.get(access.array, access.array), access.subscripts)
    )

"""Steps that need no algebra: ordinary transformations, and arrays made scalars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from looptrans.adjoint.rewriting.simpler import simpler
from looptrans.algebra.free import Free, freed, is_overwritten
from looptrans.derivation.joined.made_one import made_one_by_text
from looptrans.derivation.one_loop.writing import done, suffix_of
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.index import Index, Var
from looptrans.ir.listing import access_text
from looptrans.ir.program import Declaration, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.step import Step, same_names
from looptrans.ir.value import Access
from looptrans.ir.verdict import Certificate, Verdict
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.privacy import with_private
from looptrans.transforms.editing.tree import find_loop, node_at, replace_at
from looptrans.transforms.judging.check import check_storage, reordered
from looptrans.transforms.script import apply_all
from looptrans.transforms.steps.parallelize import require_sequential


def transformed(program: Program, call: str) -> DerivationStep:
    """Apply a transformation of `looptrans apply`.

    Args:
        program: The program.
        call: The transformation as one writes it, `parallelize(i)`.

    Raises:
        NotDone: It cannot be applied, or is not legal.
    """
    try:
        made = made_one_by_text(program, call)
        if made is not None:
            after, free = made
            arguments, shown = (call,), _by_text([free])
            return DerivationStep(call, "transformation", arguments, program, done(after), shown)
        (step,) = apply_all(program, [call])
    except (ListingError, Mistake) as error:
        raise NotDone(f"{call} cannot be applied: {error}") from None
    return checked(step, call, "transformation", (call,))


def seen_simpler(kind: str) -> Callable[[Program], DerivationStep]:
    """Return the move that sees a listing more simply in one way; see `adjoint.rewriting.simpler`.

    Args:
        kind: The way.
    """

    def move(program: Program) -> DerivationStep:
        found = simpler(program, (kind,))
        if found is None:
            raise NotDone(f"nothing changes by the way called {kind}")
        return DerivationStep(
            found.text, kind, (), program, done(found.program), found.certificates
        )

    return move


def checked(step: Step, name: str, kind: str, arguments: tuple[str, ...]) -> DerivationStep:
    """Return a transformation that was judged as a step.

    Raises:
        NotDone: It is not legal.
    """
    verdict = step.verdict
    if verdict.decision != "legal":
        raise NotDone(f"{name} is {verdict.decision}: {_why_not(verdict)}", verdict.decision)
    return DerivationStep(
        name, kind, arguments, step.before, done(step.after), _certificates(verdict)
    )


def _why_not(verdict: Verdict) -> str:
    """Return the reason of a verdict, or what its example is about."""
    if verdict.reason or not verdict.array:
        return verdict.reason
    return f"{verdict.source} and {verdict.sink} would use {verdict.array} in another order"


def _certificates(verdict: Verdict) -> tuple[Certificate, ...]:
    if verdict.certificates:
        return verdict.certificates
    reason = verdict.reason or "every read gets the value it got before"
    return (
        Certificate("order", "no dependence is reversed", "legal", reason, verdict.assumptions),
    )


def in_parallel(program: Program, *loops: str) -> DerivationStep:
    """Run loops in parallel, with locals private to their iterations, all judged at once.

    Args:
        program: The program.
        loops: The loops, each as `i@S2`, or `i@S2: t, u` with the locals to be private to it.

    Raises:
        NotDone: That is not legal.
    """
    alone = program
    names: dict[str, None] = {}
    private: dict[str, None] = {}
    found: list[Free | None] = []
    positions = []
    try:
        for each in loops:
            name, _, own = each.partition(":")
            path = find_loop(program, name.strip())
            require_sequential(program, path)
            positions.append(path.position)
            names[path.variable] = None
            wanted = [part.strip() for part in own.split(",") if part.strip()]
            unknown = [n for n in wanted if n not in {a.name for a in program.arrays}]
            if unknown:
                raise NotDone(f"there is no local {unknown[0]}")
            if wanted:
                alone = with_private(alone, path.position, wanted)
                private |= dict.fromkeys(wanted)
            found.append(freed(program, path, wanted))
        text = f"run {listed(tuple(names))} in parallel"
        if private:
            text += f", {listed(tuple(private))} private to an iteration"
        plain, images = finished(alone, same_names(program, alone))
        after = plain
        for position in positions:
            inside = node_at(after, position)
            assert isinstance(inside, Loop)
            after = replace_at(after, position, (replace(inside, execution="parallel"),))
        free = [each for each in found if each is not None]
        if len(free) == len(loops):
            shown = _by_text(free)
            return DerivationStep(text, "parallel", loops, program, done(after), shown)
        certificates: tuple[Certificate, ...] = ()
        if private:
            kept = Step(text, program, plain, check_storage(program, plain, images), images)
            certificates = checked(kept, text, "parallel", loops).shown
        order = reordered(text, plain, after, same_names(plain, after))
    except Mistake as error:
        raise NotDone(f"{loops[0]} cannot run in parallel: {error}") from None
    step = checked(order, text, "parallel", loops)
    return replace(step, before=program, shown=(*certificates, *step.shown))


def _by_text(free: list[Free]) -> tuple[Certificate, ...]:
    """Say what the text shows of loops that are free."""
    found = []
    if any(each.private for each in free):
        law = (
            "each iteration sets its private names before it reads them, and nobody else reads them"
        )
        found.append(Certificate("storage", law, "legal", "from the text"))
    own = [
        f"each iteration of {each.path.variable} has its own part of {listed(each.own)}"
        for each in free
        if each.own
    ]
    reason = "; ".join(dict.fromkeys(own)) or "the iterations share nothing that is written"
    leaning = tuple(dict.fromkeys(text for each in free for text in each.contracts))
    law = "iterations touch no cell in common"
    found.append(Certificate("order", law, "legal", reason, leaning))
    return tuple(found)


def contract(program: Program, array: str) -> DerivationStep:
    """Keep an element of an array in a scalar, where each iteration uses its own element only.

        S[i, j] = …                      S_ij = …
        m[i] = max(m[i], S[i, j])   ->   m[i] = max(m[i], S_ij)

    Args:
        program: The program.
        array: The array.

    Raises:
        NotDone: Something else reads it, or not with the same subscripts.
    """
    sites = sites_of(program, array)
    accesses = dict.fromkeys(site.access for site in sites)
    declared = program.array(array)
    if declared.role != "local" or array in live_out(program) or declared.rank == 0:
        raise NotDone(f"{array} is seen from outside")
    if len(accesses) != 1 or not any(site.relation.is_write for site in sites):
        raise NotDone(f"{array} is accessed with different subscripts")
    (access,) = accesses
    if access.rank:
        raise NotDone(f"rows of {array} are accessed")
    first = sites[0]
    if not first.relation.is_write and not any(
        s.relation.is_write and s.place.label == first.place.label for s in sites[1:]
    ):
        raise NotDone(f"{array} is read before it is written")
    reads = {s.place.label for s in sites if not s.relation.is_write}
    if any(s.relation.is_write and s.place.label in reads for s in sites):
        raise NotDone(f"{array} is what it was made from")
    loops = _shared(tuple(site.place.loop_positions for site in sites))
    name = fresh_name(program, _name(array, access.indices))
    inside = Access(name, ())

    def change(node: Node) -> tuple[Node, ...]:
        return () if isinstance(node, Declaration) and node.array == array else (node,)

    body = rewritten(program.body, change)
    body = with_accesses(body, lambda each: inside if each.array == array else each)
    scalar = replace(declared, name=name, rank=0, shape=(), annotation=None)
    after = replace(program, body=body, arrays=(*program.arrays, scalar))
    if not loops:
        raise NotDone(f"{array} is used in no loop")
    final, images = finished(after, same_names(program, after))
    if all(site is first or is_overwritten(site, first) for site in sites) and not any(
        loop.execution == "parallel" for loop in first.place.loops
    ):
        reason = f"whatever reads {access_text(access)} has just written it, in the same iteration"
        verdict = Verdict("legal", reason=reason)
    else:
        # What is not known is not done; to run listings with long loops takes minutes.
        verdict = check_storage(program, final, images, tried=False)
    step = Step(f"contract({array})", program, final, verdict, images)
    return checked(
        step, f"keep {array} in a scalar: nothing else reads it", "contraction", (array,)
    )


def _shared(paths: tuple[tuple[tuple[int, ...], ...], ...]) -> int:
    """Return how many loops are around all of some statements."""
    return sum(1 for level in zip(*paths, strict=False) if len(set(level)) == 1)


def _name(array: str, indices: tuple[Index, ...]) -> str:
    variables = [index.name for index in indices if isinstance(index, Var)]
    return f"{array.replace('.', '_')}_{suffix_of(*variables)}" if variables else f"{array}_"


def contractible(program: Program) -> tuple[str, ...]:
    """Return the local arrays that may be worth a try."""
    declared = [n.array for n in program.body if isinstance(n, Declaration)]
    return tuple(name for name in declared if name not in live_out(program))

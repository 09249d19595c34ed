"""Derivations, found by themselves: which moves apply where, from the facts of the nest.

fold      passes made one · change of state with its guard · scalars · parallel · scattered sums
forward   passes made one · scalars · the empty prefix · change of state · blocks · parallel
split     the same as far as the change of state · parts and their joining · parallel
two nests as fold, but loops in digits, parts and their joining as nests of their own · parallel
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal, TypeAlias, get_args

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.normalizing.lets import (
    program_of_indices,
    program_without_lets,
    with_sizes_put_in,
)
from looptrans.adjoint.normalizing.named_tests import with_tests_put_in
from looptrans.adjoint.rewriting.simpler import ROWS, TO_ROWS
from looptrans.algebra.free import free_loops
from looptrans.analysis import api
from looptrans.derivation.forms.at_most_once import with_loops_at_most_once
from looptrans.derivation.forms.masks import with_guards
from looptrans.derivation.forms.one_target import with_one_target
from looptrans.derivation.forms.scalar_form import without_rows_that_move
from looptrans.derivation.forms.selects import with_selects, with_wheres_as_choices
from looptrans.derivation.handed_on.by_rows import nests_with_totals
from looptrans.derivation.handed_on.scattered import scattered_sums, scattering
from looptrans.derivation.in_rows import Rows, joined_in_rows, seen_again
from looptrans.derivation.in_states import in_states, own_parts, with_whole_rows
from looptrans.derivation.moves import made
from looptrans.derivation.nests_joined import apart, by_themselves, outward
from looptrans.derivation.one_loop.bodies import flow, recurrence_of
from looptrans.derivation.one_loop.digits import loops_of_digits
from looptrans.derivation.one_loop.guards import divides, starts_infinite
from looptrans.derivation.one_loop.two_nests import TwoNests, left_over, two_nests
from looptrans.derivation.one_loop.writing import reread, without
from looptrans.derivation.order import in_order
from looptrans.derivation.ordinary import contractible
from looptrans.derivation.passes_joined import one_pass, sums
from looptrans.derivation.step import Derivation, Goal, NotDone, NotNeeded
from looptrans.derivation.together import (
    extrema_in_loops,
    own_arrays,
    own_versions,
    results_again,
    rows_again,
    sums_in_loops,
    wide_sums_in_loops,
)
from looptrans.derivation.work import Work, loop_name
from looptrans.ir.facts import DependenceReport, LoopVerdict
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.remember import remembered
from looptrans.ir.value import Whole
from looptrans.ir.verdict import Decision
from looptrans.ir.walk import nodes
from looptrans.transforms.editing.tree import LoopPath, loop_paths, node_at
from looptrans.transforms.moved.powers import with_powers_of_two

Nests: TypeAlias = Literal[
    "joined",
    "rows again",
    "as written",
    "results again",
    "apart",
    "results apart",
    "sums in loops",
    "own parts",
]
NESTS: tuple[Nests, ...] = get_args(Nests)
BLOCK = 64
PARTS = 4
PARTS_SIZE = "parts"


def derive(
    program: Program,
    goal: Goal = "forward",
    *,
    block: int = BLOCK,
    parts: int = PARTS,
    nests: Nests = "joined",
    own: bool = False,
    digits: bool = False,
    numbers: bool = False,
) -> Derivation:
    """Derive a nest that can be run fast, every step proved.

    Args:
        program: The listing.
        goal: `fold`: one pass with a single division behind it, what is free in parallel;
            `forward`: the same in blocks; `split`: partial results of parts, and their joining.
        block: For `forward`, how many iterations a block has.
        parts: For `split`, how many parts there are.
        nests: Whether nests that stand side by side are joined, stay as written, or, for `fold`,
            are taken apart where they hold several loops, or results told apart by different
            loops; what one loop hands to another then goes through memory. With `rows again`
            nests are joined, and rows that loops hand to each other worked out again; with `results
            again` results are told apart, and numbers that several hang on worked out again. With
            `sums in loops` nests stay, and sums of several variables are loops over the first one.
            With `own parts` nests are joined, and of arrays of which iterations that wait for each
            other have parts of their own each keeps its part.
        own: Whether arrays that iterations use one after the other get a part for each, as they
            must where several loops of an iteration use them.
        digits: For `fold`, whether loops over numbers of two digits become two.
        numbers: For `fold`, whether what works out numbers beside a nest becomes a nest of its own,
            and hands them over in memory.
    """
    _load_analysis()
    begun = _begun_to_fold(program) if goal == "fold" else _begun(program)
    if begun is None:
        return Derivation(reread(program), goal, (), "unknown", ("There is no statement in it.",))
    work = Work(begun)
    own_versions(work)
    in_order(work)
    if nests == "own parts":
        own_parts(work)
    if goal == "fold":
        extrema_in_loops(work)
    # The parts that rows keep have subscripts of products, through which no value is followed.
    in_states(work)
    if goal == "fold":
        before = len(work.steps)
        _by_rows(work)
        work.take(ROWS)
        if len(work.steps) > before:
            in_states(work)
    rows = Rows()
    if nests in ("joined", "own parts"):
        rows = joined_in_rows(work, own=own)
    elif nests == "rows again":
        rows_again(work, own=own)
    elif nests == "results again":
        results_again(work)
    elif nests == "sums in loops":
        sums_in_loops(work)
    else:
        own_arrays(work, reused_too=own)
        sums(work)
        one_pass(work)
    decision: Decision = "legal"
    if goal == "fold":
        if not _folds(work) and any(step.kind == "one pass" for step in work.steps):
            work = _in_passes(work, own=own)
        seen_again(work, rows)
        if nests in ("apart", "results apart"):
            apart(work, results=nests == "results apart")
        elif nests not in ("as written", "results again", "sums in loops"):
            by_themselves(work, numbers=numbers)
        wide_sums_in_loops(work)
        known = _scalars_with_flow(work)
        if (digits and _in_digits(work)) | _to_rows(work):
            known = flow(work.program)
        _parallel_by_flow(work, known)
        if _scattered(work) | outward(work) | with_whole_rows(work):
            known = None
        return replace(work.derivation(goal, decision), flow=known)
    _scalars(work)
    loop = _fold(work)
    if loop is not None:
        decision = _reshaped(work, loop, goal, block, parts)
    elif goal == "split":
        decision = work.verdict or "unknown"
    if goal == "forward" or decision == "legal":
        _to_rows(work)
        try:
            known = flow(work.program)
        except NotDone:
            known = None
        _parallel_by_flow(work, known)
    if not work.steps and decision == "legal":
        decision = work.verdict or "unknown"
    return work.derivation(goal, decision)


@dataclass(frozen=True, slots=True)
class InTwoNests:
    """A derivation that ends with a loop in parts, and another where no part is bounded.

    Attributes:
        derivation: The derivation.
        whole: The same, but at its end every part runs over all of the loop; with its flow.
        nests: The two nests before they were made parallel.
    """

    derivation: Derivation
    whole: Derivation
    nests: TwoNests


def derive_two_nests(program: Program) -> InTwoNests:
    """Derive a nest of parts and one that joins them, as many parts as a new size says.

    Args:
        program: The listing.

    Raises:
        NotDone: No loop can be split, or not with its parts as programs of their own.
    """
    _load_analysis()
    plain = program_of_indices(with_tests_put_in(_plain(program), keep=False))
    if not plain.body:
        raise NotDone("there is no statement in it")
    work = Work(reread(with_guards(with_selects(without_rows_that_move(plain)))))
    own_versions(work)
    in_order(work)
    rows = joined_in_rows(work, own=False)
    if not _folds(work):
        work = _in_passes(work, own=False)
    _scalars_with_flow(work)
    loop = _fold(work)
    # Parts are of all of the loop that folds, as of keys in pages.
    folded = set() if loop is None else {loop.partition("@")[0]}
    _in_digits(work, besides={*rows.cells, *folded})
    _to_rows(work)
    loop = _fold(work)
    if loop is None:
        raise NotDone(work.notes[-1].rstrip("."), work.verdict or "unknown")
    before = work.program
    step = made("two nests", before, (loop, PARTS_SIZE))
    if step.decision != "legal":
        open_ = next(c for c in step.certificates if c.verdict != "legal")
        raise NotDone(f"{open_.law} is {open_.verdict}: {open_.reason}", open_.verdict)
    nests = two_nests(before, loop, PARTS_SIZE)
    known = flow(nests.whole)
    free = free_loops(nests.whole, known)
    if free is None:
        raise NotDone("the text does not tell which loops of the two nests are free")
    names = tuple(_free(each.path.loop, each.private) for each in free)
    first, steps = work.first, (*work.steps, step)
    last = made("parallel", step.after, names)
    whole = made("parallel", nests.whole, names)
    left = tuple(
        f"only the first loop over {variable} is computed in parts: where {label} stands, one "
        "program runs over all of it"
        for variable, label in left_over(nests, known)
    )
    return InTwoNests(
        Derivation(first, "split", (*steps, last), "legal", left),
        Derivation(first, "split", (*steps, whole), "legal", flow=known),
        nests,
    )


def _by_rows(work: Work) -> None:
    """Let rows that add to one number keep what they add, so that they need not wait."""
    for loop in nests_with_totals(work.program):
        work.take("by rows", loop_name(loop))


def _to_rows(work: Work) -> bool:
    """Work numbers of free loops out in the rows inside; tell if there are such numbers."""
    found = False
    while work.take(TO_ROWS) is None:
        found = True
    return found


def _in_digits(work: Work, besides: Container[str] = ()) -> bool:
    """See every loop over numbers of digits as a loop for each; tell if there is one.

    Args:
        work: The work.
        besides: The variables of loops that stay.
    """
    found = False
    while any(
        work.take("digits", *each) is None
        for each in loops_of_digits(work.program)
        if each[0].partition("@")[0] not in besides
    ):
        found = True
    return found


def _scalars(work: Work) -> None:
    """Keep in scalars what no other iteration looks at."""
    for array in contractible(work.program):
        work.take("contraction", array)


def _scalars_with_flow(work: Work) -> DependenceReport | None:
    """Do the same; return the flow, which knows an array under the name of its scalar then."""
    try:
        known = flow(work.program)
    except NotDone:
        known = None
    _scalars(work)
    if known is None:
        return None
    names = {}
    for step in work.steps:
        if step.kind == "contraction":
            old, new = ({a.name for a in p.arrays} for p in (step.before, step.after))
            if len(old - new) != 1 or len(new - old) != 1:
                return None
            names[(old - new).pop()] = (new - old).pop()
    found = tuple(replace(d, array=names.get(d.array, d.array)) for d in known.dependences)
    return replace(known, dependences=found)


def _fold(work: Work) -> str | None:
    """Return the outermost loop that carries a fold; note why where there is none."""
    reasons: list[NotDone] = []
    skipped: list[tuple[int, ...]] = []
    for path in sorted(loop_paths(work.program), key=lambda path: len(path.position)):
        if path.loop.execution == "parallel" or any(
            path.position[: len(above)] == above for above in skipped
        ):
            continue
        try:
            step = recurrence_of(work.program, loop_name(path.loop))
        except NotDone as error:
            reasons.append(error)
            continue
        if not step.is_scan:
            return loop_name(path.loop)
        skipped.append(path.position)
        reasons.append(
            NotDone(
                f"{step.read_inside[0]} looks at the state of {step.loop} in between: "
                "it is a scan and no fold"
            )
        )
    for reason in reasons:
        if not reason.reason.endswith("carries no value"):
            work.note(reason)
    if not work.notes:
        work.note(NotDone("no loop carries values from one iteration to the next"))
    return None


def _folds(work: Work) -> bool:
    """Free every fold of divisions, and guard its empty prefix; tell if no guard is missing."""
    guarded = True
    # A step leaves its loop where it is, and moves only what stands behind.
    for path in reversed(loop_paths(work.program)):
        if path.loop.execution == "parallel":
            continue
        loop = node_at(work.program, path.position)
        assert isinstance(loop, Loop)
        try:
            step = recurrence_of(work.program, loop_name(loop))
        except NotDone:
            continue
        if step.is_scan:
            if starts_infinite(step):
                work.take("guard", loop_name(loop))
            continue
        reason = None
        if divides(step):
            reason = work.take("guarded change of state", loop_name(loop))
            if reason is None:
                continue
        if starts_infinite(step):
            reason = work.take("guard", loop_name(loop))
        if not starts_infinite(step) or isinstance(reason, NotNeeded):
            work.take("choices", loop_name(loop))
        if reason is not None and not isinstance(reason, NotNeeded):
            # A division by what starts from 0 gives no number in the first iteration.
            guarded = guarded and not starts_infinite(step) and not divides(step)
            work.note(reason)
    return guarded


def _in_passes(work: Work, *, own: bool) -> Work:
    """Begin anew with each pass for itself, its folds freed of divisions and guarded.

    Passes of their own give a number where one pass without a guard would give none.
    """
    again = Work(work.first, notes=work.notes)
    own_versions(again)
    in_order(again)
    own_arrays(again, reused_too=own)
    sums(again)
    _folds(again)
    return again


def _reshaped(work: Work, loop: str, goal: Goal, block: int, parts: int) -> Decision:
    """Guard, change the state, and cut the loop into blocks or parts."""
    # Where an operator is found only once there is no division, the guard comes second.
    for kind in ("guard", "change of state", "guard"):
        reason = work.take(kind, _again(work, loop))
        if reason is not None and reason.decision == "illegal":
            work.note(reason)
    name = _again(work, loop)
    reason = (
        work.take("blocks", name, block) if goal == "forward" else work.take("parts", name, parts)
    )
    if reason is None:
        return "legal"
    work.note(reason)
    return "legal" if goal == "forward" and work.steps else reason.decision


def _again(work: Work, loop: str) -> str:
    """Return the name the loop has now: the only fold of its variable left."""
    variable = loop.partition("@")[0]
    for path in loop_paths(work.program):
        if path.variable == variable and work.reduces(path.loop):
            return loop_name(path.loop)
    return loop


def _parallel(work: Work) -> None:
    """Run in parallel what may be, locals private to their iterations."""
    free = [
        _free(path.loop, verdict.names)
        for path, verdict in _facts(work)
        if verdict.decision in ("parallel", "privatize") and not _gathers(path.loop, verdict.names)
    ]
    if free and work.take("parallel", *free) is not None:
        for each in free:
            work.take("parallel", each)


def _parallel_by_flow(work: Work, known: DependenceReport | None) -> None:
    """Do the same, told by the flow and the text alone where that is enough."""
    found = None if known is None else free_loops(work.program, known)
    if found is None:
        _parallel(work)
    elif found:
        work.take("parallel", *(_free(each.path.loop, each.private) for each in found))


def _scattered(work: Work) -> bool:
    """Run in parallel what adds to cells that are looked up; tell if there is anything."""
    before = work.program
    for label in scattered_sums(work.program):
        work.take("loop as sum", label)
    for label in scattering(work.program):
        reason = work.take("scatter", label)
        if reason is not None:
            work.note(reason)
    return work.program != before


def _facts(work: Work) -> list[tuple[LoopPath, LoopVerdict]]:
    """Return what memory allows of each sequential loop."""
    facts = api.loop_facts(work.program, assumptions=False, witnesses=False)
    return [
        (path, fact.memory)
        for path, fact in zip(loop_paths(work.program), facts, strict=True)
        if path.loop.execution == "sequential"
    ]


def _plain(program: Program) -> Program:
    """Return a program without its docstring, and without loops and guards that hold nothing.

    The docstring speaks of the listing as it was written. Its statements set one cell each, where
    some order of them does the same.
    """
    program = with_one_target(with_sizes_put_in(program))
    plain = with_loops_at_most_once(with_powers_of_two(program))
    return replace(plain, docstring=None, body=without(plain.body, lambda _: False))


@remembered
def _begun(program: Program) -> Program | None:
    """Return what a derivation begins with, or None where there is no statement."""
    plain = with_tests_put_in(_plain(program), keep=False)
    if not plain.body:
        return None
    return reread(with_wheres_as_choices(without_rows_that_move(plain)))


@remembered
def _begun_to_fold(program: Program) -> Program | None:
    """Return what a derivation to one pass begins with, or None where there is no statement."""
    plain = with_tests_put_in(_plain(program), keep=False)
    if not plain.body:
        return None
    return reread(with_wheres_as_choices(with_guards(with_selects(program_without_lets(plain)))))


def _load_analysis() -> None:
    """Import what questions about dependences need.

    Each is answered in a process of its own, forked from this one: what is imported here is
    imported once, not once for every question.
    """
    for module in ("dependence.dependences", "legality.equivalence", "cycles.loops"):
        import_module(f"looptrans.analysis.{module}")


def _free(loop: Loop, private: tuple[str, ...]) -> str:
    """Return a loop with its private names as the step takes them."""
    return f"{loop_name(loop)}: {', '.join(private)}" if private else loop_name(loop)


def _gathers(loop: Loop, private: tuple[str, ...]) -> bool:
    """Tell whether iterations add to one cell, though no two of them: it is a sum all the same."""
    for node in nodes(loop.body):
        match node:
            case Assign(targets=(target,), values=(value,)) if target.array not in private:
                own = {
                    v for s in target.subscripts if not isinstance(s, Whole) for v in variables(s)
                }
                if loop.variable not in own and accumulation(target, value) is not None:
                    return True
    return False

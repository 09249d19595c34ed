"""Derivations, found by themselves: which moves apply where, from the facts of the nest.

fold      passes made one · change of state with its guard · scalars · parallel
forward   passes made one · scalars · the empty prefix · change of state · blocks · parallel
split     the same as far as the change of state · parts and their joining · parallel
two nests as fold, but parts and their joining as nests of their own · parallel
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

from looptrans.adjoint.accumulating import accumulation
from looptrans.adjoint.lets import program_of_indices, program_without_lets
from looptrans.adjoint.named_tests import with_tests_put_in
from looptrans.analysis import api
from looptrans.derivation.apart import branching
from looptrans.derivation.bodies import flow, recurrence_of
from looptrans.derivation.buffers import reused
from looptrans.derivation.free import free_loops
from looptrans.derivation.guards import divides, starts_infinite
from looptrans.derivation.loops_as_sums import is_beside_rows, is_shared, sum_loops
from looptrans.derivation.masks import with_guards
from looptrans.derivation.moves import made
from looptrans.derivation.ordinary import contractible
from looptrans.derivation.passes import Passes, brought_out, passes
from looptrans.derivation.selects import with_selects
from looptrans.derivation.side_by_side import worth_joining
from looptrans.derivation.step import (
    Argument,
    Derivation,
    DerivationStep,
    Goal,
    NotDone,
    NotNeeded,
)
from looptrans.derivation.two_nests import TwoNests, left_over, two_nests
from looptrans.derivation.writing import reread, without
from looptrans.ir.facts import DependenceReport, LoopVerdict
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.value import Whole
from looptrans.ir.verdict import Decision
from looptrans.ir.walk import nodes
from looptrans.transforms.tree import (
    LoopPath,
    Position,
    block_at,
    loop_paths,
    loops_around,
    node_at,
    statements_in,
    walk_positions,
)

Nests: TypeAlias = Literal["joined", "rows again", "as written", "apart", "results apart"]
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
            nests are joined, and rows that loops hand to each other worked out again.
        own: Whether arrays that iterations use one after the other get a part for each, as they
            must where several loops of an iteration use them.
    """
    _load_analysis()
    plain = with_tests_put_in(_plain(program), keep=False)
    if not plain.body:
        return Derivation(reread(program), goal, (), "unknown", ("There is no statement in it.",))
    work = _Work(
        reread(with_guards(with_selects(program_without_lets(plain))) if goal == "fold" else plain)
    )
    if nests == "joined":
        work = work.joined(own=own)
    elif nests == "rows again":
        work.rows_again()
    else:
        work.own_arrays(reused_too=own)
        work.sums()
        work.one_pass()
    decision: Decision = "legal"
    if goal == "fold":
        if not work.folds() and any(step.kind == "one pass" for step in work.steps):
            # Passes of their own give a number where one pass without a guard would give none.
            notes, work = work.notes, _Work(work.first)
            work.notes += notes
            work.own_arrays(reused_too=own)
            work.sums()
            work.folds()
        if nests in ("apart", "results apart"):
            work.apart(results=nests == "results apart")
        known = work.scalars_with_flow()
        work.parallel_by_flow(known)
        if work.outward():
            known = None
        return replace(work.derivation(goal, decision), flow=known)
    work.scalars()
    loop = work.fold()
    if loop is not None:
        decision = work.reshaped(loop, goal, block, parts)
    elif goal == "split":
        decision = work.verdict or "unknown"
    if goal == "forward" or decision == "legal":
        try:
            known = flow(work.program)
        except NotDone:
            known = None
        work.parallel_by_flow(known)
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
    work = _Work(reread(with_guards(with_selects(plain))))
    work = work.joined()
    if not work.folds():
        notes, work = work.notes, _Work(work.first)
        work.notes += notes
        work.own_arrays()
        work.sums()
        work.folds()
    work.scalars_with_flow()
    loop = work.fold()
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


@dataclass(slots=True)
class _Work:
    program: Program
    steps: list[DerivationStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: Decision | None = None

    @property
    def first(self) -> Program:
        return self.steps[0].before if self.steps else self.program

    def derivation(self, goal: Goal, decision: Decision) -> Derivation:
        """Return the steps that were made."""
        notes = tuple(dict.fromkeys(self.notes))
        return Derivation(self.first, goal, tuple(self.steps), decision, notes)

    def take(self, kind: str, *arguments: Argument) -> NotDone | None:
        """Make a step; return why not where it cannot be made."""
        try:
            step = made(kind, self.program, arguments)
        except NotDone as error:
            return error
        if step.decision != "legal":
            open_ = next(c for c in step.certificates if c.verdict != "legal")
            return NotDone(f"{open_.law} is {open_.verdict}: {open_.reason}", open_.verdict)
        if step.after == self.program:
            return NotDone("nothing changes")
        self.steps.append(step)
        self.program = step.after
        return None

    def note(self, reason: NotDone) -> None:
        """Keep a reason for the reader."""
        word = reason.reason.partition(" ")[0]
        begun = word.capitalize() if word.islower() and word.isalpha() and len(word) > 1 else word
        self.notes.append(f"{begun}{reason.reason[len(word) :]}.")
        self.verdict = reason.decision

    def joined(self, *, own: bool = False) -> _Work:
        """Bring nests and passes together; return the work afterwards.

        What is worked out again is so for the sake of one pass, and stays where there is none.
        """
        work = _Work(self.program)
        again = work.take("worked out again") is None
        work.own_arrays(reused_too=own)
        work.brought_together()
        if again and not any(step.kind == "one pass" for step in work.steps):
            work = self
            work.own_arrays(reused_too=own)
            work.brought_together()
        return work

    def rows_again(self) -> None:
        """Do the same, where what loops of one iteration hand to another is worked out again."""
        self.own_arrays()
        if self.take("rows worked out again") is None:
            self.brought_together()

    def brought_together(self) -> None:
        """Make one pass of nests and passes that may be one."""
        self.sums()
        self.side_by_side()
        self.one_pass()

    # What iterations have for themselves

    def own_arrays(self, *, reused_too: bool = False) -> None:
        """Count rows where they are, and let each iteration have its part of what it makes."""
        self.take("made once")
        for array, loops in reused(self.program) if reused_too else ():
            self.take("transformation", f"expand({array}, {', '.join(loops)})")
        if self.take("rows in place") is None:
            # Of rows that are counted where they are it may be known how many there can be.
            self.take("made once")
        self.take("picked")

    # Bringing passes together

    def side_by_side(self) -> None:
        """Join loops that stand one after the other and hold passes over the same range."""
        changed = True
        while changed:
            changed = False
            for first, second in self._neighbours():
                if self.take("transformation", f"fuse({first}, {second})") is None:
                    changed = True
                    break

    def apart(self, *, results: bool) -> None:
        """Make nests of their own of the loops that a nest holds, where that is legal."""
        tried: set[tuple[str, ...]] = set()
        while True:
            each = next(
                (b for b in branching(self.program, results=results) if b.cuts not in tried), None
            )
            if each is None:
                return
            tried.add(each.cuts)
            before, steps = self.program, len(self.steps)
            inner, *outer = (_name(path.loop) for path in reversed(each.around))
            loops = ", ".join([*reversed(outer), inner])
            made = [f"expand({name}, {loops})" for name in each.locals]
            made += [f"distribute({x}, {', '.join(each.cuts)})" for x in (inner, *outer)]
            for text in made:
                reason = self.take("transformation", text)
                if reason is not None:
                    self.note(reason)
                    self.program = before
                    del self.steps[steps:]
                    break

    def _neighbours(self) -> list[tuple[str, str]]:
        """Return loops of the same range next to each other that are worth joining."""
        found = []
        for _, block in _blocks(self.program):
            for a, b in pairwise(block):
                if (
                    isinstance(a, Loop)
                    and isinstance(b, Loop)
                    and a.range == b.range
                    and worth_joining(self.program, a, b)
                    and not self._reduces(a)
                    and not self._reduces(b)
                ):
                    found.append((_name(a), _name(b)))
        return found

    def _reduces(self, loop: Loop) -> bool:
        try:
            return bool(recurrence_of(self.program, _name(loop)).states)
        except NotDone:
            return False

    def one_pass(self) -> None:
        """Make passes over the same range one, those too that have to be brought side by side."""
        notes = len(self.notes)
        tried: set[Passes] = set()
        plain: int | None = None
        while True:
            found = passes(self.program, self._free_loops())
            each = next((p for p in found if p not in tried), None)
            if each is None:
                break
            tried.add(each)
            before = self.program, list(self.notes), list(self.steps)
            if plain is None:
                plain = self._joined_passes()
                self.program, self.notes, self.steps = before[0], before[1][:], before[2][:]
            joined = self._joined_passes() if self._side_by_side(each) else 0
            if joined <= plain:
                self.program, self.notes, self.steps = before
            else:
                plain = 0
        self._joined_passes()
        self._joined_with_sums(notes)

    def _joined_with_sums(self, notes: int) -> None:
        """Join the passes that are left, with what they add up in loops inside as sums."""
        left = {name for run in self._runs() for name in run}
        before = self.program, list(self.notes), list(self.steps)
        del self.notes[notes:]
        for each in sum_loops(self.program):
            around = loops_around(self.program, each.position)
            if left & {_name(path.loop) for path in around}:
                self.take("loop as sum", each.update.label)
        if self.program == before[0] or self._joined_passes() == 0:
            self.program, self.notes, self.steps = before

    def sums(self) -> None:
        """Write loops as sums where a kernel has no other form for them, or a slower one."""
        program = self.program
        for each in sum_loops(program):
            if is_shared(program, each) or is_beside_rows(program, each):
                self.take("loop as sum", each.update.label)

    def _free_loops(self) -> list[Position]:
        """Return the loops that carry nothing, nor do those around them, where that matters."""
        paths = loop_paths(self.program)
        found: list[Position] = [()]
        if not any(passes(self.program, [(), *(path.position for path in paths)])):
            return found
        for path in paths:
            outside = loops_around(self.program, path.position)
            if all(o.position in found for o in outside) and not self._reduces(path.loop):
                found.append(path.position)
        return found

    def _side_by_side(self, each: Passes) -> bool:
        """Bring passes side by side, as loops; tell whether that could be done."""
        if any(self.take("sum as a loop", label) is not None for label in each.sums):
            return False
        for label in each.inside:
            for text in brought_out(self.program, label):
                if self.take("transformation", text) is not None:
                    return False
        return True

    def _joined_passes(self) -> int:
        """Make passes over the same range one, as many at a time as can be; return how many."""
        count = len(self.steps)
        tried: set[tuple[str, ...]] = set()
        while True:
            runs = [run for run in self._runs() if run not in tried]
            if not runs:
                made = [step for step in self.steps[count:] if step.kind == "one pass"]
                return sum(len(step.arguments) - 1 for step in made)
            run = runs[0]
            tried.add(run)
            reason = self.take("one pass", *run)
            if reason is None:
                tried.clear()
                continue
            if len(run) == 2:
                self.note(reason)

    def _runs(self) -> list[tuple[str, ...]]:
        """Return loops of one block with the same range, long runs first; the first reduces."""
        found: list[tuple[str, ...]] = []
        for _, block in _blocks(self.program):
            loops = [node for node in block if isinstance(node, Loop) and statements_in((node,))]
            for start, first in enumerate(loops):
                alike = [
                    other
                    for other in loops[start:]
                    if other.range == first.range and other.execution == first.execution
                ]
                if len(alike) > 1 and self._reduces(first):
                    for end in range(len(alike), 1, -1):
                        found.append(tuple(_name(loop) for loop in alike[:end]))
                    break
        return found

    def outward(self) -> bool:
        """Bring parallel loops outside of sequential ones, so that more of them are outermost.

        Only where nothing stands between the two, or beside them inside of loops.
        """
        before = self.program
        tried: set[tuple[str, str]] = set()
        while True:
            pairs = [
                (_name(loop), _name(inner))
                for path in loop_paths(self.program)
                for loop in (path.loop,)
                for inner in loop.body
                if loop.execution == "sequential" and len(loop.body) == 1
                if len(path.position) == 1 or len(block_at(self.program, path.position)) == 1
                if isinstance(inner, Loop) and inner.execution == "parallel"
            ]
            left = [pair for pair in pairs if pair not in tried]
            if not left:
                return self.program != before
            tried.add(left[0])
            outer, inner_name = left[0]
            self.take("transformation", f"interchange({outer}, {inner_name})")

    def scalars(self) -> None:
        """Keep in scalars what no other iteration looks at."""
        for array in contractible(self.program):
            self.take("contraction", array)

    def scalars_with_flow(self) -> DependenceReport | None:
        """Do the same; return the flow, which knows an array under the name of its scalar then."""
        try:
            known = flow(self.program)
        except NotDone:
            known = None
        self.scalars()
        if known is None:
            return None
        names = {}
        for step in self.steps:
            if step.kind == "contraction":
                old, new = ({a.name for a in p.arrays} for p in (step.before, step.after))
                if len(old - new) != 1 or len(new - old) != 1:
                    return None
                names[(old - new).pop()] = (new - old).pop()
        found = tuple(replace(d, array=names.get(d.array, d.array)) for d in known.dependences)
        return replace(known, dependences=found)

    # The fold

    def fold(self) -> str | None:
        """Return the outermost loop that carries a fold; note why where there is none."""
        reasons: list[NotDone] = []
        skipped: list[tuple[int, ...]] = []
        for path in sorted(loop_paths(self.program), key=lambda path: len(path.position)):
            if path.loop.execution == "parallel" or any(
                path.position[: len(above)] == above for above in skipped
            ):
                continue
            try:
                step = recurrence_of(self.program, _name(path.loop))
            except NotDone as error:
                reasons.append(error)
                continue
            if not step.is_scan:
                return _name(path.loop)
            skipped.append(path.position)
            reasons.append(
                NotDone(
                    f"{step.read_inside[0]} looks at the state of {step.loop} in between: "
                    "it is a scan and no fold"
                )
            )
        for reason in reasons:
            if not reason.reason.endswith("carries no value"):
                self.note(reason)
        if not self.notes:
            self.note(NotDone("no loop carries values from one iteration to the next"))
        return None

    def folds(self) -> bool:
        """Free every fold of divisions, and guard its empty prefix; tell if no guard is missing."""
        guarded = True
        # A step leaves its loop where it is, and moves only what stands behind.
        for path in reversed(loop_paths(self.program)):
            if path.loop.execution == "parallel":
                continue
            loop = node_at(self.program, path.position)
            assert isinstance(loop, Loop)
            try:
                step = recurrence_of(self.program, _name(loop))
            except NotDone:
                continue
            if step.is_scan:
                continue
            reason = None
            if divides(step):
                reason = self.take("guarded change of state", _name(loop))
                if reason is None:
                    continue
            if starts_infinite(step):
                reason = self.take("guard", _name(loop))
            if reason is not None and not isinstance(reason, NotNeeded):
                # A division by what starts from 0 gives no number in the first iteration.
                guarded = guarded and not starts_infinite(step) and not divides(step)
                self.note(reason)
        return guarded

    def reshaped(self, loop: str, goal: Goal, block: int, parts: int) -> Decision:
        """Guard, change the state, and cut the loop into blocks or parts."""
        # Where an operator is found only once there is no division, the guard comes second.
        for kind in ("guard", "change of state", "guard"):
            reason = self.take(kind, self._again(loop))
            if reason is not None and reason.decision == "illegal":
                self.note(reason)
        name = self._again(loop)
        reason = (
            self.take("blocks", name, block)
            if goal == "forward"
            else self.take("parts", name, parts)
        )
        if reason is None:
            return "legal"
        self.note(reason)
        return "legal" if goal == "forward" and self.steps else reason.decision

    def _again(self, loop: str) -> str:
        """Return the name the loop has now: the only fold of its variable left."""
        variable = loop.partition("@")[0]
        for path in loop_paths(self.program):
            if path.variable == variable and self._reduces(path.loop):
                return _name(path.loop)
        return loop

    # What is free

    def parallel(self) -> None:
        """Run in parallel what may be, locals private to their iterations."""
        free = [
            _free(path.loop, verdict.names)
            for path, verdict in self._facts()
            if verdict.decision in ("parallel", "privatize")
            and not _gathers(path.loop, verdict.names)
        ]
        if free and self.take("parallel", *free) is not None:
            for each in free:
                self.take("parallel", each)

    def parallel_by_flow(self, known: DependenceReport | None) -> None:
        """Do the same, told by the flow and the text alone where that is enough."""
        found = None if known is None else free_loops(self.program, known)
        if found is None:
            self.parallel()
        elif found:
            self.take("parallel", *(_free(each.path.loop, each.private) for each in found))

    def _facts(self) -> list[tuple[LoopPath, LoopVerdict]]:
        """Return what memory allows of each sequential loop."""
        facts = api.loop_facts(self.program, assumptions=False, witnesses=False)
        return [
            (path, fact.memory)
            for path, fact in zip(loop_paths(self.program), facts, strict=True)
            if path.loop.execution == "sequential"
        ]


def _plain(program: Program) -> Program:
    """Return a program without its docstring, and without loops and guards that hold nothing.

    The docstring speaks of the listing as it was written.
    """
    return replace(program, docstring=None, body=without(program.body, lambda _: False))


def _load_analysis() -> None:
    """Import what questions about dependences need.

    Each is answered in a process of its own, forked from this one: what is imported here is
    imported once, not once for every question.
    """
    for module in ("dependences", "equivalence", "loops"):
        import_module(f"looptrans.analysis.{module}")


def _free(loop: Loop, private: tuple[str, ...]) -> str:
    """Return a loop with its private names as the step takes them."""
    return f"{_name(loop)}: {', '.join(private)}" if private else _name(loop)


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


def _name(loop: Loop) -> str:
    """Return a name by which the loop is found: by the first statement directly in it if it can."""
    labels = [n.label for n in loop.body if isinstance(n, Assign)]
    inside = statements_in((loop,))
    return f"{loop.variable}@{(labels or inside)[0]}"


def _blocks(program: Program) -> list[tuple[tuple[int, ...], tuple[Node, ...]]]:
    """Return every block of a program, outer ones first."""
    found: list[tuple[tuple[int, ...], tuple[Node, ...]]] = [((), program.body)]
    for position, _ in walk_positions(program.body):
        if position[-1] == 0 and len(position) > 1:
            found.append((position, block_at(program, position)))
    return found

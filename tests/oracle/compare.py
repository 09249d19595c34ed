"""The analysis against the trace oracle, instance by instance."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import takewhile
from math import floor
from random import Random

import numpy as np
import pytest

import looptrans.analysis.cycles.graph
import looptrans.analysis.cycles.judge
import looptrans.analysis.cycles.loops  # noqa: F401  # before the fork, not in each child
from looptrans.analysis.budget import within_budget
from looptrans.analysis.dependence.dependences import Analysis, analyse, dependence_report
from looptrans.frontend import parse
from looptrans.ir.facts import Dependence, DependenceReport
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.verdict import Witness
from tests.oracle.trace import Access, Pair, loops, memory, trace, value_flow

SECONDS = 10.0
SEEDS = (0, 1, 2)
_MOST_PAIRS = 1_000_000
_SHOWN = 6
_TIMES = re.compile(r"(?<=\d)(?=[A-Za-z(])")
_MOD = re.compile(r"\(([^()]*)\) ?mod ?(\d+)")
_BASES = (("flow", "value"), ("flow", "memory"), ("anti", "memory"), ("output", "memory"))
Arrays = Mapping[str, np.ndarray]
Sizes = Mapping[str, int]


def compare(
    source: str,
    sizes: Sizes,
    arrays: Arrays,
    features: Collection[str],
    name: str | None = None,
    *,
    witnesses: bool = False,
    seconds: float = SECONDS,
) -> None:
    """Check that the dependences at these sizes are those of the running listing.

    What is listed as certain must occur, what occurs must be listed, and only what data or integer
    arrays decide may be listed as `may`; where they do not, the sets must be equal. Integer arrays
    are tried twice: with their contents given, and without, against several contents.

    Args:
        source: The text of the listing.
        sizes: The values of its integer parameters.
        arrays: The contents of its integer arrays.
        features: What occurs in it; a `data_guard` allows dependences that only may happen.
        name: The function to run, if the text has several.
        witnesses: Check also that the example of each dependence occurs where it says.
        seconds: How long the analysis may take.

    Raises:
        AssertionError: They are not; the message shows the listing and the pairs.
        BudgetExceeded: The analysis took too long.
    """
    program = parse(Source("nest.py", source), name)
    contents = {
        n: {cell: int(value) for cell, value in np.ndenumerate(array)}
        for n, array in arrays.items()
    }

    def work() -> list[DependenceReport]:
        with pytest.MonkeyPatch.context() as patch:
            if not witnesses:
                # Most of the time goes into the smallest example of each dependence.
                patch.setattr(Analysis, "witness", lambda *_: Witness("order", (), (), ()))
            analysis = _analysed(program, witnesses)
            reports = [dependence_report(analysis, at=sizes)]
            if contents:
                reports.append(dependence_report(analysis, at=sizes, contents=contents))
            return reports

    def alone() -> DependenceReport:
        """Return what derivations ask for, which isl answers by itself where it can."""
        return dependence_report(analyse(program, bases=("value",)), at=sizes, witnesses=False)

    free, *given = within_budget(work, seconds)
    case = Case(source, dict(sizes), arrays, frozenset(features), name)
    # Other numbers take other branches, and other contents other cells; all must be listed.
    traces = [_run(case, arrays, seed) for seed in (SEEDS if _depends_on_data(case) else SEEDS[:1])]
    for report in given:
        _check(case, program, report, traces, known=frozenset(arrays), where="contents given")
    more = [_run(case, other, 0) for other in _other_contents(case)]
    _check(case, program, free, traces + more, known=frozenset(), where="no contents given")
    if witnesses:
        flow = {p for d in free.dependences if d.basis == "value" for p in _pairs(d)}
        mine = {p for d in within_budget(alone, seconds).dependences for p in _pairs(d)}
        if flow != mine:
            raise AssertionError(
                _message(case, "value-based flow alone differs", "flow", flow - mine, mine - flow)
            )
    if witnesses and not arrays and not _depends_on_data(case):
        _check_witnesses(case, free)


@lru_cache(maxsize=2)
def _analysed(program: Program, _: bool) -> Analysis:
    """Return an analysis, that of a listing that is compared at many sizes once."""
    return analyse(program)


@dataclass(frozen=True)
class Case:
    """A listing and what it runs on."""

    source: str
    sizes: dict[str, int]
    arrays: Arrays
    features: frozenset[str]
    name: str | None


def _run(case: Case, arrays: Arrays, seed: int) -> list[Access]:
    return trace(case.source, sizes=case.sizes, arrays=arrays, function=case.name, seed=seed)


def _depends_on_data(case: Case) -> bool:
    return bool(case.features & {"data_guard", "select"})


def _other_contents(case: Case) -> Iterator[Arrays]:
    """Yield other contents, where nothing is declared about them."""
    if not case.arrays or "assert" in case.source or ':"' in case.source or '"0:' in case.source:
        return
    for seed in SEEDS[1:]:
        random = Random(seed)
        yield {
            name: np.array([random.randrange(4) for _ in range(array.size)], np.int64).reshape(
                array.shape
            )
            for name, array in case.arrays.items()
        }


def _check(
    case: Case,
    program: Program,
    report: DependenceReport,
    traces: list[list[Access]],
    known: frozenset[str],
    where: str,
) -> None:
    def fail(what: str, kind: str, missing: Collection[Pair], wrong: Collection[Pair]) -> None:
        raise AssertionError(_message(case, f"{what} ({where})", kind, missing, wrong))

    if report.unknown is not None:
        fail(f"unknown: {report.unknown}", "all", (), ())
    unsure = uncertain_arrays(case.source, known, case.name)
    for kind, basis in _BASES:
        oracle = [value_flow(t) if basis == "value" else memory(t, kind) for t in traces]
        listed: set[Pair] = set()
        certain: set[Pair] = set()
        for dependence in report.dependences:
            if (dependence.kind, dependence.basis) == (kind, basis):
                pairs = _pairs(dependence)
                listed |= pairs
                if not dependence.may:
                    certain |= pairs
                elif dependence.array not in unsure:
                    fail(f"{dependence.array} is `may` for no reason", f"{kind}/{basis}", (), pairs)
        occurring = set().union(*oracle)
        if not occurring <= listed:
            fail("pairs are missing", f"{kind}/{basis}", occurring - listed, ())
        for one in oracle:
            if not certain <= one:
                fail("certain pairs do not occur", f"{kind}/{basis}", (), certain - one)
        surely = {pair for pair in oracle[0] if pair[4] not in unsure}
        claimed = {pair for pair in listed if pair[4] not in unsure}
        if surely != claimed:
            fail("sets differ", f"{kind}/{basis}", surely - claimed, claimed - surely)
    _check_vectors(case, report)


def _check_witnesses(case: Case, report: DependenceReport) -> None:
    """Run the listing at the sizes of each example and look for it."""
    ran: dict[tuple[tuple[str, int], ...], dict[str, set[Pair]]] = {}
    for dependence in report.dependences:
        example = dependence.witness
        assert example is not None
        if example.parameters not in ran:
            sizes = dict(example.parameters)
            accesses = trace(
                case.source, sizes={**dict.fromkeys(case.sizes, 1), **sizes}, function=case.name
            )
            cells = Counter((access.array, access.cell) for access in accesses)
            if sum(count * count for count in cells.values()) > _MOST_PAIRS:
                continue  # few examples are that large
            ran[example.parameters] = {
                f"{kind}/{basis}": value_flow(accesses)
                if basis == "value"
                else memory(accesses, kind)
                for kind, basis in _BASES
            }
        key = f"{dependence.kind}/{dependence.basis}"
        ends = [tuple(value for _, value in end) for end in (example.source, example.sink)]
        pair = (dependence.source, ends[0], dependence.sink, ends[1], dependence.array)
        if pair not in ran[example.parameters][key]:
            what = f"the example does not occur at {dict(example.parameters)}"
            raise AssertionError(_message(case, what, key, (), [pair]))


def _pairs(dependence: Dependence) -> set[Pair]:
    instances = dependence.instances
    assert instances is not None
    found = {(dependence.source, a, dependence.sink, b, dependence.array) for a, b in instances}
    assert len(found) == len(instances), f"instances are listed twice: {dependence}"
    return found


def _message(
    case: Case, what: str, kind: str, missing: Collection[Pair], wrong: Collection[Pair]
) -> str:
    lines = [f"{what}; {kind}", "", case.source.rstrip(), "", f"sizes: {case.sizes}"]
    lines += [f"{name} = {array.tolist()}" for name, array in case.arrays.items()]
    for word, pairs in (("missing", missing), ("wrong", wrong)):
        if pairs:
            lines.append(f"{word} ({len(pairs)}):")
            lines += [
                f"  {source}{at} -> {sink}{there} on {array}"
                for source, at, sink, there, array in sorted(pairs)[:_SHOWN]
            ]
    return "\n".join(lines)


def weight(source: str) -> int:
    """Return about how much work it is to find the dependences of a listing.

    That is how many there can be, the writes of each array and scalar times its accesses, times one
    more than how often its loops, conditions and subscripts ask an integer array.
    """
    tree = ast.parse(textwrap.dedent(source))
    nodes = list(ast.walk(tree))
    integers = {node.arg for node in nodes if isinstance(node, ast.arg) and node.annotation}
    loops = [node.target for node in nodes if isinstance(node, ast.For)]
    variables = {target.id for target in loops if isinstance(target, ast.Name)}
    contracts = [
        inner for node in nodes if isinstance(node, ast.Assert) for inner in ast.walk(node)
    ]
    bases = [node.value for node in nodes if isinstance(node, ast.Subscript)]
    passed = {id(node) for node in contracts + bases}
    accesses: dict[str, list[bool]] = {}
    asked = 0
    for node in nodes:
        if not isinstance(node, ast.Name | ast.Subscript) or id(node) in passed:
            continue
        base: ast.expr = node
        while isinstance(base, ast.Subscript):
            base = base.value
        name = base.id if isinstance(base, ast.Name) else ast.unparse(base)
        if name in integers:
            asked += 1
        elif name not in variables:
            accesses.setdefault(name, []).append(isinstance(node.ctx, ast.Store))
    return sum(sum(writes) * len(writes) for writes in accesses.values()) * (1 + asked)


# What data or integer arrays decide, read off the text.


def uncertain_arrays(source: str, known: frozenset[str], name: str | None = None) -> set[str]:
    """Return the arrays and scalars with an access that data or unknown contents decide.

    It errs towards too many.

    Args:
        source: The text of the listing.
        known: The integer arrays whose contents are given.
        name: The function, if the text has several.
    """
    tree = _chosen(source, name)
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        assigned.setdefault(inner.id, []).append(node.value)

    def reads_data(node: ast.AST) -> bool:
        return any(
            (
                isinstance(n, ast.Subscript)
                and not (isinstance(n.value, ast.Name) and n.value.id in known)
            )
            or (isinstance(n, ast.Name) and n.id in assigned)
            for n in ast.walk(node)
        )

    def unknown_place(index: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        for n in ast.walk(index):
            if isinstance(n, ast.Subscript):
                if not (isinstance(n.value, ast.Name) and n.value.id in known):
                    return True
            elif isinstance(n, ast.Name) and n.id not in seen:
                values = assigned.get(n.id, [])
                if any(unknown_place(value, seen | {n.id}) for value in values):
                    return True
        return False

    found: set[str] = set()

    def visit(node: ast.AST, unsure: bool) -> None:
        if isinstance(node, ast.For):
            visit(node.iter, unsure)
            inside = unsure or unknown_place(node.iter)
            for child in node.body:
                visit(child, inside)
        elif isinstance(node, ast.If | ast.IfExp):
            visit(node.test, unsure)
            inside = unsure or reads_data(node.test)
            for branch in (node.body, node.orelse):
                parts: Sequence[ast.AST] = branch if isinstance(branch, list) else [branch]
                for part in parts:
                    visit(part, inside)
        elif isinstance(node, ast.BoolOp):
            inside = unsure
            for value in node.values:
                visit(value, inside)
                inside = inside or reads_data(value)
        elif isinstance(node, ast.Assert):
            return
        else:
            if isinstance(node, ast.Subscript) and (unsure or unknown_place(node.slice)):
                found.update(n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))
            elif isinstance(node, ast.Name) and unsure:
                found.add(node.id)
            for inner in ast.iter_child_nodes(node):
                visit(inner, unsure)

    for statement in tree.body:
        visit(statement, False)
    return found


def _chosen(source: str, name: str | None) -> ast.Module | ast.FunctionDef:
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and name in (None, node.name):
            return node
    return tree


# Directions and distances, checked against the instances.


def _check_vectors(case: Case, report: DependenceReport) -> None:
    """Check direction, distance and carrier of every dependence against its own instances."""
    paths = loops(case.source, function=case.name)
    found = _loops_in_order(_chosen(case.source, case.name))
    for dependence in report.dependences:
        ends = zip(paths[dependence.source], paths[dependence.sink], strict=False)
        shared = [found[a - 1] for a, _ in takewhile(lambda pair: pair[0] == pair[1], ends)]
        names = tuple(loop.target.id for loop in shared if isinstance(loop.target, ast.Name))
        label = f"{dependence.kind}/{dependence.basis}"
        shown = f"{dependence.direction} {dependence.distance} by {dependence.carried_by}"
        problem = ""
        if dependence.loops != names:
            problem = f"common loops {dependence.loops}, not {names}"
        first = next(
            (n for n, s in zip(names, dependence.direction, strict=True) if s != "="), None
        )
        if dependence.carried_by != first:
            problem = f"carried by {dependence.carried_by}, not {first}"
        if dependence.instances and not problem:
            problem = _wrong_vector(case, dependence, shared)
        if problem:
            what = f"{dependence.source} -> {dependence.sink} on {dependence.array}: {problem}"
            raise AssertionError(_message(case, f"{what}; {shown}", label, (), ()))


def _wrong_vector(case: Case, dependence: Dependence, shared: Sequence[ast.For]) -> str:
    """Say what is wrong with the direction or the distance of an instance; empty if nothing is."""
    for level, (sign, entry) in enumerate(
        zip(dependence.direction, dependence.distance, strict=True)
    ):
        expected = None if entry == "*" else _evaluate(entry, case.sizes)
        count = cache(partial(_count, case, shared[: level + 1]))
        for pair in dependence.instances or ():
            source, sink = (count(end[: level + 1]) for end in pair)
            if source is None or sink is None:
                continue
            counted = sink - source
            if sign != ("=" if counted == 0 else "<" if counted > 0 else ">"):
                return f"direction at {pair} is not {sign} but {counted} in loop {level}"
            if expected is not None and expected != counted:
                return f"distance at {pair} is {counted} in loop {level}"
    return ""


def _evaluate(entry: str, sizes: Sizes) -> int:
    """Evaluate an expression of the parameters, as the report writes it."""
    try:
        text = _TIMES.sub("*", _MOD.sub(r"((\1) % \2)", entry))
        return int(eval(text, {"min": min, "max": max, "floor": floor}, dict(sizes)))
    except (SyntaxError, NameError):
        raise AssertionError(f"cannot read the distance {entry!r}") from None


def _count(case: Case, around: Sequence[ast.For], iteration: tuple[int, ...]) -> int | None:
    """Return which iteration of the innermost of these loops it is; None if arrays decide."""
    loop = around[-1]
    assert isinstance(loop.iter, ast.Call)
    arguments = loop.iter.args
    step = ast.literal_eval(arguments[2]) if len(arguments) == 3 else 1
    value = iteration[len(around) - 1]
    if abs(step) == 1:
        # Where the loop starts does not matter to the values of its variable.
        return int(value * step)
    start = ast.unparse(arguments[0])
    if "[" in start:
        return None
    names = [outer.target.id for outer in around if isinstance(outer.target, ast.Name)]
    scope = {**case.sizes, **dict(zip(names, iteration, strict=False))}
    return int((value - eval(start, {"min": min, "max": max}, scope)) // step)


def _loops_in_order(tree: ast.AST) -> list[ast.For]:
    found: list[ast.For] = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.For):
            found.append(child)
        found += _loops_in_order(child)
    return found

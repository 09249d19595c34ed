"""`looptrans deps`, `ddg`, `scc`, `loops`, `claims` and `report`: what depends on what."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from looptrans.cli.at import add_at
from looptrans.cli.terminal import FINE, NEGATIVE, UNKNOWN, refused, style
from looptrans.cli.verb import (
    Implementation,
    Verbs,
    add_budget,
    add_format,
    add_listing,
    add_placement,
    add_verb,
    load_listing,
    warn_of_subscripts,
)

if TYPE_CHECKING:
    from looptrans.ir.facts import (
        Basis,
        ClaimDecision,
        ClaimFact,
        DependenceKind,
        DependenceReport,
        LoopFacts,
    )

KINDS: tuple[DependenceKind, ...] = ("flow", "anti", "output")
BASES: tuple[Basis, ...] = ("value", "memory")

DEPS = """\
Flow is write then read, anti read then write, output write then write. By value, a read gets the
value of that very write; in memory, both touch the same cell, whatever lies between. Where one
dependence has more than 4096 direction vectors, as in nine loops around a scalar, those of each
carrying loop are one line, with * for more than one sign. A loop in steps of a size, as
range(0, N, P), is listed as `looptrans show` prints it: its variable counts the steps, from 0."""
DEPS_EXAMPLES = """
looptrans deps specs/flash_forward.py --basis value
looptrans deps specs/stencil.py --at N=4 --format svg > stencil.svg
looptrans deps nest.py --at 'B=3,N=4,n=[2,0,1]' --format json
"""
DDG = """\
A node is a statement, an edge its dependences of one kind on another; cycles are boxed."""
DDG_EXAMPLES = """
looptrans ddg specs/flash_forward.py
looptrans ddg specs/flash_forward.py --graph all --format dot
looptrans ddg specs/flash_forward_as_printed.py --placement annotated --format mermaid
"""
SCC = """\
In condensation order: every dependence runs inside a component or to a later one."""
SCC_EXAMPLES = """
looptrans scc specs/flash_forward.py
looptrans scc specs/flash_forward.py --graph all --format json
"""
LOOPS = """\
Each loop has two verdicts, on values alone and on memory as the listing uses it: parallel,
parallel once names are privatized, a reduction, sequential (with an example), or unknown."""
LOOPS_EXAMPLES = """
looptrans loops specs/flash_forward.py
looptrans loops specs/flash_forward_as_printed.py --placement annotated
"""
CLAIMS = """\
What the comments say (self dependence, SLoop, TLoop, RAW/WAR/WAW, aggregation) is never trusted:
each claim holds or is refuted by a fact. The exit status is 1 if one is refuted."""
CLAIMS_EXAMPLES = """
looptrans claims specs/flash_forward_as_printed.py
looptrans claims specs/flash_forward.py --format json
"""
REPORT_EXAMPLES = """
looptrans report specs/flash_forward.py
looptrans report specs/matmul.py --format json
"""


def add_deps(verbs: Verbs) -> None:
    """Add the verb `deps`."""
    parser = _add(verbs, "deps", deps, "list every dependence", DEPS, DEPS_EXAMPLES)
    add_format(parser, "text", "json", "svg")
    _add_selection(parser, "all", "flow,anti,output")
    add_at(parser)


def add_ddg(verbs: Verbs) -> None:
    """Add the verb `ddg`."""
    parser = _add(verbs, "ddg", ddg, "draw the dependence graph", DDG, DDG_EXAMPLES)
    add_format(parser, "text", "json", "mermaid", "dot", "svg")
    _add_graph(parser)
    _add_selection(parser, "what --graph says", "what --graph says")


def add_scc(verbs: Verbs) -> None:
    """Add the verb `scc`."""
    summary = "list the strongly connected components of the dependence graph"
    parser = _add(verbs, "scc", scc, summary, SCC, SCC_EXAMPLES)
    add_format(parser, "text", "json")
    _add_graph(parser)


def add_loops(verbs: Verbs) -> None:
    """Add the verb `loops`."""
    summary = "say of each loop whether its iterations may run in any order"
    parser = _add(verbs, "loops", loops, summary, LOOPS, LOOPS_EXAMPLES)
    add_format(parser, "text", "json")


def add_claims(verbs: Verbs) -> None:
    """Add the verb `claims`."""
    summary = "check what the comments claim"
    parser = _add(verbs, "claims", claims, summary, CLAIMS, CLAIMS_EXAMPLES)
    add_format(parser, "text", "json")


def add_report(verbs: Verbs) -> None:
    """Add the verb `report`."""
    summary = "print components, loop verdicts, dependences and claims"
    parser = _add(verbs, "report", report, summary, "", REPORT_EXAMPLES)
    add_format(parser, "text", "json")


def _add(
    verbs: Verbs, name: str, verb: Implementation, summary: str, description: str, examples: str
) -> argparse.ArgumentParser:
    parser = add_verb(
        verbs, name, verb, summary=summary, description=description, examples=examples
    )
    add_listing(parser)
    add_placement(parser)
    add_budget(parser)
    return parser


def _add_selection(parser: argparse.ArgumentParser, basis: str, kinds: str) -> None:
    parser.add_argument(
        "--basis",
        choices=(*BASES, "all"),
        help=f"dependences of values, of memory, or both (default: {basis})",
    )
    parser.add_argument(
        "--kinds",
        type=_kinds,
        metavar="KIND,…",
        help=f"some of flow, anti and output (default: {kinds})",
    )


def _add_graph(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--graph",
        choices=("flow", "all"),
        default="flow",
        help="flow of values only, or every dependence (default: flow)",
    )


def _kinds(text: str) -> tuple[DependenceKind, ...]:
    asked = [part.strip() for part in text.split(",")]
    wrong = [part for part in asked if part not in KINDS]
    if wrong:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in asked)


def _bases(arguments: argparse.Namespace) -> tuple[Basis, ...]:
    return tuple(basis for basis in BASES if arguments.basis in {basis, "all", None})


def deps(arguments: argparse.Namespace) -> int:
    """Print the dependences."""
    from looptrans.analysis.api import dependences, iteration_points
    from looptrans.analysis.budget import BudgetExceeded
    from looptrans.cli.concrete import concrete
    from looptrans.reports import render_dependences

    program = load_listing(arguments)
    given = arguments.at
    if arguments.format == "svg" and given is None:
        if any(parameter.is_integer for parameter in program.parameters):
            return refused("a picture of the iteration space needs sizes", "add --at M=2,N=3")
        given = []
    at, contents = (None, None) if given is None else concrete(program, given)
    found = dependences(
        program,
        bases=_bases(arguments),
        kinds=arguments.kinds or KINDS,
        at=at,
        contents=contents,
        budget=arguments.budget,
    )
    points = None
    if arguments.format == "svg" and at is not None:
        if found.unknown is not None:  # a picture without arrows would say that there are none
            return _incomplete(found.unknown)
        try:
            points = iteration_points(program, at, contents, arguments.budget)
        except BudgetExceeded as error:
            return _incomplete(str(error))
    found = _noted(found, arguments)
    return _finish(
        arguments,
        lambda: render_dependences(found, arguments.format, style(), points),
        unknown=found.unknown is not None,
    )


def ddg(arguments: argparse.Namespace) -> int:
    """Print or draw the dependence graph."""
    from looptrans.analysis.api import components, dependences
    from looptrans.reports import render_graph

    program = load_listing(arguments)
    kinds = arguments.kinds or (("flow",) if arguments.graph == "flow" else KINDS)
    bases = _bases(arguments)
    if arguments.basis is None and arguments.graph == "flow" and kinds == ("flow",):
        bases = ("value",)
    found = dependences(program, bases=bases, kinds=kinds, budget=arguments.budget)
    cycles = components(program, graph=arguments.graph, budget=arguments.budget)
    found = _noted(replace(found, unknown=found.unknown or cycles.unknown), arguments)
    return _finish(
        arguments,
        lambda: render_graph(found, cycles, arguments.format, style()),
        unknown=found.unknown is not None,
    )


def scc(arguments: argparse.Namespace) -> int:
    """Print the strongly connected components."""
    from looptrans.analysis.api import components
    from looptrans.reports import render_components

    program = load_listing(arguments)
    found = components(program, graph=arguments.graph, budget=arguments.budget)
    warn_of_subscripts(program)
    return _finish(
        arguments,
        lambda: render_components(found, arguments.format, style()),
        unknown=found.unknown is not None,
    )


def loops(arguments: argparse.Namespace) -> int:
    """Print the verdicts on each loop."""
    from looptrans.analysis.api import loop_facts
    from looptrans.reports import render_loops
    from looptrans.transforms.steps.advice import with_contracts_named

    program = load_listing(arguments)
    found = with_contracts_named(program, loop_facts(program, budget=arguments.budget))
    warn_of_subscripts(program)
    return _finish(
        arguments,
        lambda: render_loops(program.name, found, arguments.format, style()),
        unknown=_is_undecided(found),
    )


def claims(arguments: argparse.Namespace) -> int:
    """Print each claim with the verdict on it."""
    from looptrans.analysis.api import claims as checked
    from looptrans.reports import render_claims

    program = load_listing(arguments)
    found = checked(program, budget=arguments.budget)
    warn_of_subscripts(program)
    return _finish(
        arguments,
        lambda: render_claims(program.name, found, arguments.format, style()),
        refuted=_has(found, "refuted"),
        unknown=_has(found, "unknown"),
    )


def report(arguments: argparse.Namespace) -> int:
    """Print all of it."""
    from looptrans.analysis.api import everything
    from looptrans.reports import render_report
    from looptrans.transforms.steps.advice import with_contracts_named

    program = load_listing(arguments)
    # The text counts the dependences in memory and shows none of them.
    shown: tuple[Basis, ...] = ("value",) if arguments.format == "text" else BASES
    found = everything(program, shown=shown, budget=arguments.budget)
    judged = with_contracts_named(program, found.loops)
    both = (found.components, found.all_components)
    dependences = _noted(found.dependences, arguments)
    incomplete = any(each.unknown is not None for each in (dependences, *both))
    return _finish(
        arguments,
        lambda: render_report(dependences, both, judged, found.claims, arguments.format, style()),
        refuted=_has(found.claims, "refuted"),
        unknown=incomplete or _is_undecided(found.loops) or _has(found.claims, "unknown"),
    )


def _is_undecided(found: Iterable[LoopFacts]) -> bool:
    return any("unknown" in {each.flow.decision, each.memory.decision} for each in found)


def _has(found: Iterable[ClaimFact], decision: ClaimDecision) -> bool:
    return any(claim.decision == decision for claim in found)


def _noted(found: DependenceReport, arguments: argparse.Namespace) -> DependenceReport:
    """Print what is worth a look to stderr, and return the report without what that repeats."""
    from looptrans.reports.style import printable

    for warning in found.warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    if arguments.format == "text":
        return replace(found, warnings=())
    if found.unknown is not None:
        _incomplete(found.unknown)
    return found


def _incomplete(reason: str) -> int:
    print(f"unknown: the answer is incomplete: {reason}", file=sys.stderr)
    return UNKNOWN


def _finish(
    arguments: argparse.Namespace,
    render: Callable[[], str],
    *,
    unknown: bool,
    refuted: bool = False,
) -> int:
    """Print the result and return the exit status."""
    try:
        text = render()
    except ValueError as error:
        if arguments.format != "svg":
            raise
        return refused(str(error))  # it is too large, or has too many loops, for a picture
    print(text, end="")
    if refuted:
        return NEGATIVE
    return UNKNOWN if unknown else FINE

"""One function for each verb: facts and a format to text.

Only what a format needs is loaded, so that a verb starts fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from looptrans.ir.facts import ClaimFact, ComponentReport, DependenceReport, LoopFacts
from looptrans.ir.step import Step
from looptrans.reports.style import PLAIN, Style

if TYPE_CHECKING:
    from looptrans.derivation.step import Derivation

Format: TypeAlias = Literal["text", "json", "mermaid", "dot", "svg", "md"]
Shown: TypeAlias = Literal["last", "steps", "diff"]

FORMATS: Final[Mapping[str, tuple[Format, ...]]] = {
    "deps": ("text", "json", "svg"),
    "ddg": ("text", "json", "mermaid", "dot", "svg"),
    "scc": ("text", "json"),
    "loops": ("text", "json"),
    "claims": ("text", "json"),
    "report": ("text", "json"),
    "check": ("text", "json"),
    "apply": ("text", "json"),
    "derive": ("text", "json", "md"),
}


def render_dependences(
    report: DependenceReport,
    format: Format = "text",
    style: Style = PLAIN,
    points: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
) -> str:
    """Render the dependences as a table, as `looptrans.deps/1`, or as a picture.

    Args:
        report: The facts.
        format: `text`, `json` or `svg`.
        style: How text is dressed.
        points: The iterations of each statement; needed for `svg`, the iteration space, together
            with `instances` in the report.

    Raises:
        ValueError: The format does not exist here, or the iteration space cannot be drawn.
    """
    _check("deps", format)
    if format == "json":
        from looptrans.reports.contract import dependences_document, dumps

        return dumps(dependences_document(report))
    if format == "svg":
        if points is None:
            raise ValueError("a picture of the iteration space needs sizes, such as --at M=2,N=3")
        from looptrans.reports.space_svg import iteration_space_svg

        return iteration_space_svg(report, points)
    from looptrans.reports.text_dependences import dependences_text

    return dependences_text(report, style)


def render_graph(
    report: DependenceReport,
    components: ComponentReport,
    format: Format = "text",
    style: Style = PLAIN,
) -> str:
    """Render the dependence graph: every dependence of `report`, boxed as `components` say.

    Raises:
        ValueError: The format does not exist here, or the graph is too large for a picture.
    """
    _check("ddg", format)
    if format == "json":
        from looptrans.reports.contract import dumps, graph_document

        return dumps(graph_document(report, components))
    if format == "mermaid":
        from looptrans.reports.graph_mermaid import graph_mermaid

        return graph_mermaid(report, components)
    if format == "dot":
        from looptrans.reports.graph_dot import graph_dot

        return graph_dot(report, components)
    if format == "svg":
        from looptrans.reports.graph_svg import graph_svg

        return graph_svg(report, components)
    from looptrans.reports.text_graph import graph_text

    return graph_text(report, components, style)


def render_components(
    components: ComponentReport, format: Format = "text", style: Style = PLAIN
) -> str:
    """Render the strongly connected components, in condensation order.

    Raises:
        ValueError: The format does not exist here.
    """
    _check("scc", format)
    if format == "json":
        from looptrans.reports.contract import components_document, dumps

        return dumps(components_document(components))
    from looptrans.reports.text_graph import components_text

    return components_text(components, style)


def render_loops(
    program: str, loops: Sequence[LoopFacts], format: Format = "text", style: Style = PLAIN
) -> str:
    """Render the verdicts on each loop.

    Raises:
        ValueError: The format does not exist here.
    """
    _check("loops", format)
    if format == "json":
        from looptrans.reports.contract import dumps, loops_document

        return dumps(loops_document(loops))
    from looptrans.reports.text_verdicts import loops_text

    return loops_text(program, loops, style)


def render_claims(
    program: str, claims: Sequence[ClaimFact], format: Format = "text", style: Style = PLAIN
) -> str:
    """Render the checked annotations.

    Raises:
        ValueError: The format does not exist here.
    """
    _check("claims", format)
    if format == "json":
        from looptrans.reports.contract import claims_document, dumps

        return dumps(claims_document(program, claims))
    from looptrans.reports.text_verdicts import claims_text

    return claims_text(program, claims, style)


def render_report(
    report: DependenceReport,
    components: Sequence[ComponentReport],
    loops: Sequence[LoopFacts],
    claims: Sequence[ClaimFact],
    format: Format = "text",
    style: Style = PLAIN,
) -> str:
    """Render all of it.

    Raises:
        ValueError: The format does not exist here.
    """
    _check("report", format)
    if format == "json":
        from looptrans.reports.contract import dumps, report_document

        return dumps(report_document(report, components, loops, claims))
    from looptrans.reports.text_report import report_text

    return report_text(report, components, loops, claims, style)


def render_verdict(
    steps: Sequence[Step],
    format: Format = "text",
    style: Style = PLAIN,
    untried: Sequence[str] = (),
) -> str:
    """Render the verdicts on transformations, a diagnosis for one that is not legal.

    Args:
        steps: The steps, of which only the last may be other than legal; one without a name is a
            question about the listing as it stands.
        format: `text` or `json`, which is `looptrans.check/1`.
        style: How text is dressed.
        untried: Transformations that were not made because the one before is not legal.

    Raises:
        ValueError: The format does not exist here.
    """
    _check("check", format)
    if format == "json":
        from looptrans.reports.contract import dumps
        from looptrans.reports.verdict_document import check_document

        return dumps(check_document(steps))
    from looptrans.reports.verdict_text import steps_text

    return steps_text(steps, untried, style)


def render_applied(
    steps: Sequence[Step],
    format: Format = "text",
    style: Style = PLAIN,
    shown: Shown = "last",
    *,
    anyway: bool = False,
) -> str:
    """Render the nest after transformations.

    Args:
        steps: One step or more.
        format: `text` or `json`, which is `looptrans.apply/1`.
        style: How text is dressed.
        shown: The `last` listing, the one after each of the `steps`, or the `diff` each makes.
        anyway: Show listings also where a step is not legal; without it there is no text then.

    Raises:
        ValueError: The format does not exist here.
    """
    _check("apply", format)
    if format == "json":
        from looptrans.reports.contract import dumps
        from looptrans.reports.verdict_document import apply_document

        return dumps(apply_document(steps, every=shown == "steps", anyway=anyway))
    if not anyway and any(step.verdict.decision != "legal" for step in steps):
        return ""
    if shown == "last":
        from looptrans.ir.listing import listing

        return listing(steps[-1].after)
    from looptrans.reports.stages import changes_text, stages_text

    return stages_text(steps) if shown == "steps" else changes_text(steps, style)


def render_derivation(derivation: Derivation, format: Format = "text", style: Style = PLAIN) -> str:
    """Render a derivation: its steps as diffs, with what each leans on.

    Args:
        derivation: The derivation.
        format: `text`, `md`, or `json`, which is `looptrans.derive/1`.
        style: How text is dressed.

    Raises:
        ValueError: The format does not exist here.
    """
    _check("derive", format)
    if format == "json":
        from looptrans.derivation.saved import saved

        return saved(derivation)
    from looptrans.reports.derivation import derivation_markdown, derivation_text

    return derivation_markdown(derivation) if format == "md" else derivation_text(derivation, style)


def _check(verb: str, format: Format) -> None:
    if format not in FORMATS[verb]:
        raise ValueError(f"{verb} has the formats {', '.join(FORMATS[verb])}, not {format}")

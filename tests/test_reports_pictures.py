"""The graph and the iteration space as pictures: well-formed, escaped, stable, nothing overlaps."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from looptrans.ir.facts import (
    Component,
    ComponentReport,
    Dependence,
    DependenceKind,
    DependenceReport,
    Direction,
    StatementFact,
)
from looptrans.reports import Format, render_dependences, render_graph
from looptrans.reports.graph import build_graph
from looptrans.reports.graph_layout import layout
from looptrans.reports.graph_route import (
    Rectangle,
    box_rectangle,
    route,
    self_places,
    statement_rectangle,
)
from looptrans.reports.space import build_space
from looptrans.reports.space_svg import iteration_space_svg
from tests.test_reports_goldens import check_golden
from tests.test_reports_samples import (
    FLASH_ALL,
    FLASH_COMPONENTS,
    HOSTILE,
    HOSTILE_COMPONENTS,
    STENCIL,
    STENCIL_COMPONENTS,
    flash_points,
    flash_report,
)

SVG = "{http://www.w3.org/2000/svg}"
FULL = flash_report(("flow", "anti", "output"))
KINDS: tuple[DependenceKind, ...] = ("flow", "anti", "output")


def random_graph(seed: int) -> tuple[DependenceReport, ComponentReport]:
    chance = random.Random(seed)
    count = chance.randint(1, 20)
    labels = [f"S{number}" for number in range(1, count + 1)]
    statements = tuple(
        StatementFact(label, "a" * chance.randint(1, 90), 1, ("i",)) for label in labels
    )
    rest, components = labels[:], []
    while rest:
        size = chance.choice((1, 1, 1, 2, 3, 5))
        components.append(Component(tuple(rest[:size]), ("i",) if size > 1 else ()))
        rest = rest[size:]
    dependences = []
    for _ in range(chance.randint(0, 3 * count)):
        source, sink = chance.choice(labels), chance.choice(labels)
        kind = chance.choice(KINDS)
        dependences.append(
            Dependence(
                *(kind, "memory", False, source, sink, "x" * chance.randint(1, 9)),
                *(("i",), ("1",), ("<",), "i", 2, None),
            )
        )
    chance.shuffle(components)
    report = DependenceReport("random", (), statements, tuple(dependences))
    return report, ComponentReport("flow", tuple(components))


GRAPHS = [
    (flash_report(), FLASH_COMPONENTS),
    (FULL, FLASH_COMPONENTS),
    (FULL, FLASH_ALL),
    (STENCIL, STENCIL_COMPONENTS),
    (HOSTILE, HOSTILE_COMPONENTS),
    (replace(STENCIL, statements=(), dependences=()), ComponentReport("flow", ())),
    *(random_graph(seed) for seed in range(40)),
]


def apart(one: Rectangle, two: Rectangle) -> bool:
    """Whether two (left, top, right, bottom) do not overlap."""
    return one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]


def edges_of(place: Rectangle) -> Rectangle:
    """Turn (x, y, width, height) into (left, top, right, bottom)."""
    return place[0], place[1], place[0] + place[2], place[1] + place[3]


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_nothing_overlaps(number: int) -> None:
    graph = build_graph(*GRAPHS[number])
    plan = layout(graph)
    rows, routes = route(graph, plan)
    nodes = [statement_rectangle(plan, rows, node) for node in range(len(graph.nodes))]
    labels = [edges_of(each.place) for each in routes]
    for node in range(len(graph.nodes)):
        labels += [edges_of(place) for _, place in self_places(plan, rows, node)]
    assert len(labels) == len(graph.edges)
    assert all(apart(one, two) for one, two in combinations([*nodes, *labels], 2))
    boxes = [box_rectangle(plan, rows, box.members, k) for k, box in enumerate(graph.boxes)]
    assert all(apart(one, two) for one, two in combinations(boxes, 2))
    for box, frame in zip(graph.boxes, boxes, strict=True):
        for node, place in enumerate(nodes):
            inside = frame[0] < place[0] and place[2] < frame[2]
            inside = inside and frame[1] < place[1] and place[3] < frame[3]
            assert inside if node in box.members else apart(place, frame)
    for each in routes:
        ends = {graph.edges[each.edge].source, graph.edges[each.edge].sink}
        for (x0, y0), (x1, y1) in zip(each.points, each.points[1:], strict=False):
            piece = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            assert all(apart(piece, place) for k, place in enumerate(nodes) if k not in ends)


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_svg_is_well_formed_and_stable(number: int) -> None:
    text = render_graph(*GRAPHS[number], "svg")
    assert text == render_graph(*GRAPHS[number], "svg") and text.endswith("</svg>\n")
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    title = root.find(f"{SVG}title")
    assert title is not None and title.text is not None and "Dependence graph" in title.text
    graph = build_graph(*GRAPHS[number])
    classes = [element.get("class", "").split() for element in root.iter()]
    assert sum("statement" in each for each in classes) == len(graph.nodes)
    assert sum("edge" in each for each in classes) == len(graph.edges)
    assert sum("cycle" in each for each in classes) == len(graph.boxes)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    shifts = [g.get("transform") for g in root.iter(f"{SVG}g") if g.get("transform")]
    dx, dy = map(float, re.findall(r"-?[\d.]+", shifts[0] or ""))
    inner = next(g for g in root.iter(f"{SVG}g") if g.get("transform") == shifts[0])
    for rectangle in inner.iter(f"{SVG}rect"):
        left, top = float(rectangle.get("x", "0")) + dx, float(rectangle.get("y", "0")) + dy
        assert left >= 0 and left + float(rectangle.get("width", "0")) <= width
        assert top >= 0 and top + float(rectangle.get("height", "0")) <= height


def test_line_styles_say_the_kind_and_carried_edges_are_heavy() -> None:
    root = ET.fromstring(render_graph(FULL, FLASH_COMPONENTS, "svg"))
    edges = [e for e in root.iter(f"{SVG}path") if "edge" in e.get("class", "")]
    styles = {(e.get("class"), e.get("stroke-dasharray"), e.get("stroke")) for e in edges}
    assert len(styles) == 3 == len({dash for _, dash, _ in styles})
    for edge in edges:
        said = edge.findtext(f"{SVG}title") or ""
        assert (edge.get("stroke-width") == "2.3") == ("\nby " in said)
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"m (=,<)", "by j", "cycle carried by j", "o_id (=,=,=)"} <= texts


def test_hostile_text_survives_escaping() -> None:
    root = ET.fromstring(render_graph(HOSTILE, HOSTILE_COMPONENTS, "svg"))
    said = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert any('a["x"] = b <c> & d | e \\ f\n#quot; `g` ]]> -->\\x1b[31m \\x00' in s for s in said)


def test_a_graph_too_large_for_a_picture_is_refused() -> None:
    statements = tuple(StatementFact(f"S{k}", "x = 1", k, ()) for k in range(500))
    report = DependenceReport("large", (), statements, ())
    with pytest.raises(ValueError, match="120 statements"):
        render_graph(report, ComponentReport("flow", ()), "svg")
    assert render_graph(report, ComponentReport("flow", ()), "dot").count("\n") > 500


@pytest.mark.parametrize("format", ["mermaid", "dot", "svg"])
def test_graph_goldens(format: Format) -> None:
    ending = {"mermaid": "mmd", "dot": "dot", "svg": "svg"}[format]
    check_golden(f"reports_flash.{ending}", render_graph(flash_report(), FLASH_COMPONENTS, format))
    check_golden(f"reports_hostile.{ending}", render_graph(HOSTILE, HOSTILE_COMPONENTS, format))


def test_mermaid_lines() -> None:
    lines = render_graph(FULL, FLASH_COMPONENTS, "mermaid").splitlines()
    assert lines[0] == "flowchart TD"
    graph = build_graph(FULL, FLASH_COMPONENTS)
    edges = [line for line in lines if re.match(r'    S\d+ (-->|-\.->)\|".*"\| S\d+$', line)]
    assert len(edges) == len(graph.edges)
    assert sum(line.startswith("    subgraph ") for line in lines) == 3
    assert sum(line == "    end" for line in lines) == 3
    numbers = [n for line in lines if "linkStyle" in line for n in line.split()[1].split(",")]
    assert sorted(map(int, numbers)) == list(range(len(edges)))


def test_mermaid_escapes_what_it_would_read() -> None:
    text = render_graph(HOSTILE, HOSTILE_COMPONENTS, "mermaid")
    for line in text.splitlines():
        for label in re.findall(r'"(.*)"', line):
            assert not re.search(r'["\\|`%]', label)
            assert not re.search(r"[<>]", label.replace("<br/>", ""))
            assert not re.search(r"#(?!\d+;)", label) and "&" not in label


def test_dot_is_balanced_and_quoted() -> None:
    for report, components in GRAPHS:
        text = render_graph(report, components, "dot")
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
        assert bare.count("{") == bare.count("}") and '"' not in bare.replace('""', "")
        graph = build_graph(report, components)
        assert bare.count(" -> ") == len(graph.edges)
        assert bare.count("subgraph cluster_") == len(graph.boxes)


def test_parallel_pieces_are_one_edge() -> None:
    graph = build_graph(FULL, FLASH_COMPONENTS)
    loop = next(e for e in graph.edges if e.source == e.sink == 7 and e.kind == "output")
    assert loop.lines == ("o_id (=,=,<) (=,<,*) (<,*,*)",)
    assert loop.carried_by == ("i", "j", "d")


def nest(
    loops: Sequence[str], instances: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> DependenceReport:
    names = tuple(loops)
    statement = StatementFact("S1", "a = a", 1, names)
    before: Direction = "<"
    directions = (before,) * len(names)
    one = Dependence(
        *("flow", "value", False, "S1", "S1", "a", names, ("*",) * len(names), directions),
        *(names[0] if names else None, 1, None),
        instances=tuple(instances),
    )
    return DependenceReport("nest", ("N",), (statement,), (one,))


def test_iteration_space_of_three_loops() -> None:
    report, points = flash_report(at=True), flash_points()
    text = render_dependences(report, "svg", points=points)
    assert text == render_dependences(report, "svg", points=points)
    root = ET.fromstring(text)
    classes = [element.get("class", "") for element in root.iter()]
    assert classes.count("point") == 2 * 3 * 2
    assert classes.count("edge flow") == 8 and classes.count("witness") == 3
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"i", "j", "d"} <= set(texts)
    check_golden("reports_flash_space.svg", text)


def test_iteration_space_of_the_stencil() -> None:
    text = iteration_space_svg(STENCIL, {"S1": [(i, j) for i in (1, 2, 3) for j in (1, 2)]})
    check_golden("reports_stencil_space.svg", text)
    space = build_space(STENCIL, {"S1": [(1, 2), (2, 1)]})
    assert space.loops == ("i", "j") and space.highlight == space.arrows[0]
    assert (space.highlight.source, space.highlight.sink) == ((1, 2), (2, 1))


def test_shallow_statements_are_drawn_at_common_coordinates() -> None:
    report = flash_report(("flow",), at=True)
    space = build_space(report, flash_points())
    arrows = {(arrow.source, arrow.sink) for arrow in space.arrows}
    assert ((0, 0, 0), (0, 1, 0)) in arrows and ((0, 0, 1), (0, 1, 1)) in arrows
    assert all(a[0] == b[0] and a[2] == b[2] for a, b in arrows)
    assert space.inside > 0 and space.outside == 0


def test_iteration_space_of_one_loop_and_large_values() -> None:
    report = nest(("i",), [((-(10**9),), (10**9,))])
    root = ET.fromstring(iteration_space_svg(report, {"S1": [(-(10**9),), (10**9,)]}))
    assert float(root.get("width", "0")) < 1000


@pytest.mark.parametrize(
    ("report", "points", "message"),
    [
        (nest("ijkl", []), {"S1": [(0, 0, 0, 0)]}, "up to three loops.* has 4"),
        (nest((), []), {"S1": [()]}, "no loop"),
        (nest("i", []), {"S1": []}, "no iteration"),
        (nest("i", []), {"S1": [(k,) for k in range(5000)]}, "up to 2000 points"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    report: DependenceReport, points: dict[str, list[tuple[int, ...]]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        iteration_space_svg(report, points)

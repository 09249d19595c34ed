"""The data dependence graph and its strongly connected components."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import networkx as nx

from looptrans.analysis.dependence.dependences import Analysis, Carried
from looptrans.ir.facts import Component, ComponentReport
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.walk import nodes


def dependence_graph(
    analysis: Analysis, graph: Literal["flow", "all"]
) -> tuple[nx.DiGraph, list[Carried]]:
    """Build the graph over statement numbers.

    A statement under a data-dependent guard also depends on the guard's condition.

    Args:
        analysis: The dependences; of both bases for `all`.
        graph: `flow` takes value-based flow, `all` everything on memory as well.

    Returns:
        The graph, and the pairs that are its edges.
    """
    edges = analysis.carried(None if graph == "all" else "value")
    result = nx.DiGraph()
    result.add_nodes_from(range(len(analysis.model.statements)))
    result.add_edges_from((f.relation.source, f.relation.sink) for f in edges)
    result.add_edges_from(_control_edges(analysis))
    return result, edges


def _control_edges(analysis: Analysis) -> Iterable[tuple[int, int]]:
    """Lead from each data-dependent condition to what it guards."""
    numbers = {statement.label: statement.number for statement in analysis.model.statements}
    for guard in _guards(analysis.program.body):
        for inner in _labels(guard.body + guard.orelse):
            yield numbers[guard.label or ""], numbers[inner]


def _guards(body: tuple[Node, ...]) -> Iterable[If]:
    return (node for node in nodes(body) if isinstance(node, If) and node.label is not None)


def _labels(body: tuple[Node, ...]) -> Iterable[str]:
    for node in nodes(body):
        if isinstance(node, Assign | If) and node.label is not None:
            yield node.label


def groups(count: int, edges: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return what waits for each other, in an order in which every edge runs to a later group.

    Args:
        count: How many there are; they are called 0, 1, …
        edges: What comes first, and what waits for it.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    parts = nx.condensation(graph)
    members = {part: tuple(sorted(parts.nodes[part]["members"])) for part in parts}
    order = nx.lexicographical_topological_sort(parts, key=lambda part: members[part][0])
    return tuple(members[part] for part in order)


def components(analysis: Analysis, graph: Literal["flow", "all"]) -> ComponentReport:
    """Return the strongly connected components in condensation order.

    Every dependence runs inside a component or to a later one; of several orders the one nearest
    to the text is taken.
    """
    whole, edges = dependence_graph(analysis, graph)
    order = loop_order(analysis.program)
    names = {statement.number: statement.label for statement in analysis.model.statements}
    parts: list[set[int]] = list(nx.strongly_connected_components(whole))
    condensed = nx.condensation(whole, parts)
    first = {node: min(data["members"]) for node, data in condensed.nodes(data=True)}
    found = []
    for node in nx.lexicographical_topological_sort(condensed, key=lambda n: first[n]):
        members = condensed.nodes[node]["members"]
        inside = [e for e in edges if e.relation.source in members and e.relation.sink in members]
        carriers = {c for e in inside if (c := analysis.carrier(e)) is not None}
        found.append(
            Component(
                tuple(names[number] for number in sorted(members)),
                _loop_names(sorted(carriers), order),
            )
        )
    return ComponentReport(graph, tuple(found))


def _loop_names(
    positions: list[tuple[int, ...]], loops: dict[tuple[int, ...], Loop]
) -> tuple[str, ...]:
    """Name loops by variable; with the line where two of them share one."""
    variables = [loops[position].variable for position in positions]
    return tuple(
        variable if variables.count(variable) == 1 else f"{variable}@{loops[position].span.line}"
        for variable, position in zip(variables, positions, strict=True)
    )


def loop_order(program: Program) -> dict[tuple[int, ...], Loop]:
    """Return every loop by its position, in textual order."""
    found: dict[tuple[int, ...], Loop] = {}

    def visit(body: tuple[Node, ...], position: tuple[int, ...]) -> None:
        for number, node in enumerate(body):
            here = (*position, number)
            match node:
                case Loop():
                    found[here] = node
                    visit(node.body, here)
                case If():
                    visit(node.body, (*here, 1))
                    visit(node.orelse, (*here, 2))
                case Atomic() | BlockReduce():
                    visit(node.body, here)
                case _:
                    pass

    visit(program.body, ())
    return found

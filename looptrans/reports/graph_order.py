"""Which row a statement of a drawn graph stands in, and which stand to its left.

Rows follow the order of the condensation and, inside a cycle, of the text: an edge that goes along
with it goes down, any other goes up. From left to right there is one sequence for all rows, in
which the statements of a cycle are neighbours; it is found by barycentres and then by moving one
statement, or one cycle, at a time while the edges get shorter and cross less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from looptrans.reports.graph import Graph

_SWEEPS = 8


def pairs(graph: Graph) -> dict[tuple[int, int], int]:
    """Return how many edges join two statements, the one in the upper row first."""
    place = {node: number for number, node in enumerate(graph.order)}
    found: dict[tuple[int, int], int] = {}
    for edge in graph.edges:
        if edge.source != edge.sink:
            upper, lower = sorted((edge.source, edge.sink), key=lambda node: place[node])
            found[upper, lower] = found.get((upper, lower), 0) + 1
    return found


def rows(graph: Graph) -> list[int]:
    """Return the row of each statement: below what it depends on, close to what depends on it."""
    above: dict[int, list[int]] = {node: [] for node in graph.order}
    below: dict[int, list[int]] = {node: [] for node in graph.order}
    for upper, lower in pairs(graph):
        above[lower].append(upper)
        below[upper].append(lower)
    row = dict.fromkeys(graph.order, 0)
    for node in graph.order:
        row[node] = max((row[other] + 1 for other in above[node]), default=0)
    for node in reversed(graph.order):
        if len(below[node]) > len(above[node]):
            row[node] = min(row[other] for other in below[node]) - 1
    lone = [node for node in graph.order if not above[node] and not below[node]]
    for number, node in enumerate(lone):
        row[node] = number // 4
    return [row[node] for node in range(len(graph.nodes))]


def sequence(graph: Graph, cost: Callable[[Sequence[int]], float]) -> list[int]:
    """Return the statements from left to right, the members of a box beside one another.

    Args:
        graph: What is drawn.
        cost: How long and how tangled the edges are for a sequence.
    """
    lanes = _lanes(graph)
    joined = pairs(graph)
    best = [node for lane in lanes for node in lane]
    least = cost(best)
    for _ in range(_SWEEPS):
        lanes = _by_barycentre(lanes, joined)
        tried = [node for lane in lanes for node in lane]
        price = cost(tried)
        if price < least:
            best, least = tried, price
    left = 60_000 // (len(graph.nodes) + len(joined) ** 2 // 8 + 1)
    return _improved(graph, best, least, cost, left)


def _lanes(graph: Graph) -> list[list[int]]:
    box_of = {member: box.members for box in graph.boxes for member in box.members}
    lanes: list[list[int]] = []
    seen: set[int] = set()
    for node in graph.order:
        if node not in seen:
            lanes.append(list(box_of.get(node, (node,))))
            seen.update(lanes[-1])
    return lanes


def _by_barycentre(lanes: list[list[int]], joined: dict[tuple[int, int], int]) -> list[list[int]]:
    place = {node: number for number, node in enumerate(n for lane in lanes for n in lane)}
    pull: dict[int, list[tuple[int, int]]] = {node: [] for node in place}
    for (upper, lower), weight in joined.items():
        pull[upper].append((place[lower], weight))
        pull[lower].append((place[upper], weight))

    def centre(nodes: Sequence[int]) -> float:
        pulls = [each for node in nodes for each in pull[node]]
        total = sum(weight for _, weight in pulls)
        own = sum(place[node] for node in nodes) / len(nodes)
        return own if not total else sum(at * weight for at, weight in pulls) / total

    inside = [sorted(lane, key=lambda node: (centre([node]), place[node])) for lane in lanes]
    return sorted(inside, key=lambda lane: (centre(lane), place[lane[0]]))


def _improved(
    graph: Graph,
    best: list[int],
    least: float,
    cost: Callable[[Sequence[int]], float],
    left: int,
) -> list[int]:
    """Move one lane, or one statement within its lane, while that helps and `left` tries last."""
    box_of = graph.box_of
    better = True
    while better:
        better = False
        for moved in _movable(graph):
            for tried in _moves(best, moved, box_of):
                if left <= 0:
                    return best
                left -= 1
                price = cost(tried)
                if price < least - 1e-9:
                    best, least, better = tried, price, True
    return best


def _movable(graph: Graph) -> list[tuple[int, ...]]:
    lanes = [tuple(lane) for lane in _lanes(graph)]
    members = [(node,) for lane in lanes if len(lane) > 1 for node in lane]
    return ([*lanes] if len(lanes) > 1 else []) + members


def _moves(best: list[int], moved: tuple[int, ...], box_of: dict[int, int]) -> list[list[int]]:
    group = [node for node in best if node in moved]
    rest = [node for node in best if node not in moved]
    found = []
    for place in range(len(rest) + 1):
        tried = [*rest[:place], *group, *rest[place:]]
        if tried != best and _together(tried, box_of):
            found.append(tried)
    return found


def _together(tried: list[int], box_of: dict[int, int]) -> bool:
    """Whether no box is torn apart."""
    runs = [box_of.get(tried[0])] if tried else []
    runs += [
        box_of.get(two)
        for one, two in pairwise(tried)
        if box_of.get(one) != box_of.get(two) or two not in box_of
    ]
    boxes = [run for run in runs if run is not None]
    return len(boxes) == len(set(boxes))

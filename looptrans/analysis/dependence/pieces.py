"""A dependence relation cut into pieces, each with one direction vector and, if any, one distance.

The distance of a pair counts iterations in execution order, sink minus source, over the loops the
two statements share. Pieces have disjoint instances, so that a union of, say, distance 1 and
distance `1-D` is listed as the two it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import islpy as isl

from looptrans.analysis.dependence.directions import SIGNS, carriers_in, directions_of, orthant
from looptrans.analysis.isl_model.model import Bound, Model, StatementModel
from looptrans.analysis.isl_model.polyhedra import dimensions, tuple_text
from looptrans.analysis.isl_model.relation import Relation
from looptrans.ir.facts import Direction
from looptrans.ir.index import opaque_terms
from looptrans.ir.program import Loop

_PARAM = isl.dim_type.param
_SET = isl.dim_type.set
_IN = isl.dim_type.in_
_OUT = isl.dim_type.out
MOST_POINTS = 8
MOST_CONVEX = 4
MOST_SHORTENED = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """Some pairs of a relation.

    Attributes:
        pairs: The pairs.
        may: Whether only the running program knows if they happen.
        loops: The loops shared, outermost first.
        direction: `<` where the source is in an earlier iteration; inside the carrier `*` for
            several signs, where there are too many vectors to list.
        distance: An entry for each loop; `*` where it is no function of the parameters.
        distances: The set of distances, where there is a `*`.
        within: Whether the distances that occur may be fewer.
    """

    pairs: isl.Map
    may: bool
    loops: tuple[Loop, ...]
    direction: tuple[Direction, ...]
    distance: tuple[str, ...]
    distances: str | None
    within: bool

    @property
    def shared(self) -> int:
        """How many loops source and sink share."""
        return len(self.loops)

    @property
    def carrier(self) -> int | None:
        """The level of the outermost loop in which source and sink differ."""
        for level, sign in enumerate(self.direction):
            if sign != "=":
                return level
        return None


def pieces_of(model: Model, relation: Relation, counts: Counts) -> Iterator[Piece]:
    """Cut a relation into pieces, in order of direction and distance.

    What occurs for certain and what may occur are pieces of their own.

    Args:
        model: The program.
        relation: What to cut.
        counts: The iteration counts of the program's statements.
    """
    cutter = _cutter(model, relation, counts)
    if relation.certain is None:
        yield from cutter.cut(relation, relation.pairs, relation.may)
        return
    rest = relation.pairs.subtract(relation.certain)
    parts = [*cutter.cut(relation, relation.certain, False), *cutter.cut(relation, rest, True)]
    signs = [*(sign for sign, _ in SIGNS), "*"]
    yield from sorted(parts, key=lambda part: [signs.index(sign) for sign in part.direction])


def carriers_of(model: Model, relation: Relation, counts: Counts) -> tuple[int | None, ...]:
    """Return the levels of the loops that carry pieces of a relation, in the pieces' order.

    Args:
        model: The program.
        relation: The relation.
        counts: The iteration counts of the program's statements.
    """
    return _cutter(model, relation, counts).carriers(relation.pairs)


def _cutter(model: Model, relation: Relation, counts: Counts) -> _Cutter:
    source, sink = model.statements[relation.source], model.statements[relation.sink]
    return _Cutter(model, source, sink, source.shared_depth(sink), counts)


_Cut: TypeAlias = tuple[isl.Map, tuple[Direction, ...], tuple[str, ...], str | None]
_Where: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]
_Key: TypeAlias = tuple[_Where, _Where, isl.Map]
_Part: TypeAlias = tuple[isl.Set, tuple[Direction, ...], tuple[str, ...], str | None]


@dataclass(frozen=True, slots=True)
class Counts:
    """What counts the iterations of each statement's outer loops, made once and kept.

    Attributes:
        model: The program.
        context: What is known of the parameters.
        made: The counts by statement and depth.
        split: Sets of distances that were already cut, by loops and set.
        cut: Relations that were already cut, by loops and pairs.
        levels: The levels of what carries relations, by loops and pairs.
    """

    model: Model
    context: isl.Set
    made: dict[tuple[int, int], isl.Map] = field(default_factory=dict)
    split: dict[tuple[tuple[str, ...], isl.Set], list[_Part]] = field(default_factory=dict)
    cut: dict[_Key, list[_Cut]] = field(default_factory=dict)
    levels: dict[_Key, tuple[int | None, ...]] = field(default_factory=dict)

    def of(self, statement: StatementModel, depth: int) -> isl.Map:
        """Map an instance to the counts of its `depth` outermost loops, in execution order."""
        key = (statement.number, depth)
        if key not in self.made:
            self.made[key] = self._make(statement, depth)
        return self.made[key]

    def _make(self, statement: StatementModel, depth: int) -> isl.Map:
        names = dimensions(statement)
        notation = self.model.notation(names)
        counts, parts = [], []
        for level, bound in enumerate(statement.bounds[:depth]):
            name, step = names[bound.variable], bound.range.step
            counts.append(f"n{level}")
            if abs(step) == 1 or not _start_is_affine(bound):
                parts.append(f"n{level} = {'-' if step < 0 else ''}{name}")
            else:
                start = notation.index(bound.range.start)
                parts.append(f"{name} = {start} + {step} * n{level}")
        formula = " and ".join(parts) or "0 = 0"
        left = tuple_text(statement)
        return isl.Map(f"{self.model.prefix}{{ {left} -> [{', '.join(counts)}] : {formula} }}")


@dataclass(frozen=True, slots=True)
class _Cutter:
    model: Model
    source: StatementModel
    sink: StatementModel
    depth: int
    counts: Counts

    def cut(self, relation: Relation, pairs: isl.Map, may: bool) -> Iterator[Piece]:
        loops = self.source.loops[: self.depth]
        names = [pairs.get_tuple_name(kind) for kind in (_IN, _OUT)]
        key = self._key(pairs)
        if key not in self.counts.cut:
            self.counts.cut[key] = list(self._cut(pairs, loops))
        for chosen, direction, distance, exact in self.counts.cut[key]:
            # Scalars of one nest have the same pairs; only the statements' names differ.
            named = chosen.set_tuple_name(_IN, names[0]).set_tuple_name(_OUT, names[1])
            yield Piece(named, may, loops, direction, distance, exact, relation.within)

    def carriers(self, pairs: isl.Map) -> tuple[int | None, ...]:
        key = self._key(pairs)
        if key not in self.counts.levels:
            distances = self._distances(pairs).intersect_params(self.counts.context)
            self.counts.levels[key] = tuple(carriers_in(distances, self.depth))
        return self.counts.levels[key]

    def _key(self, pairs: isl.Map) -> _Key:
        bare = pairs.reset_tuple_id(_IN).reset_tuple_id(_OUT)
        places = (self.source.place, self.sink.place)
        source, sink = ((place.loop_positions, place.phases) for place in places)
        return source, sink, bare

    def _cut(self, pairs: isl.Map, loops: tuple[Loop, ...]) -> Iterator[_Cut]:
        distances = self._distances(pairs).intersect_params(self.counts.context)
        key = (tuple(loop.variable for loop in loops), distances)
        if key not in self.counts.split:
            self.counts.split[key] = [
                (part, direction, distance, exact)
                for direction, within in directions_of(distances, self.depth)
                for part, distance, exact in self._by_distance(within, direction)
            ]
        parts = self.counts.split[key]
        for part, direction, distance, exact in parts:
            chosen = pairs if len(parts) == 1 else pairs.intersect(self._at_distance(part))
            yield chosen, direction, distance, exact

    # Iteration counts and their differences

    def _distances(self, pairs: isl.Map) -> isl.Set:
        bounds = self.source.bounds[: self.depth]
        if all(bound.range.step == 1 for bound in bounds):
            cut = pairs.project_out(_OUT, self.depth, self.sink.depth - self.depth)
            cut = cut.project_out(_IN, self.depth, self.source.depth - self.depth)
            cut = cut.reset_tuple_id(_IN).reset_tuple_id(_OUT)
        else:
            cut = pairs.apply_domain(self.counts.of(self.source, self.depth)).apply_range(
                self.counts.of(self.sink, self.depth)
            )
        return cut.deltas()

    def _at_distance(self, distances: isl.Set) -> isl.Map:
        """Return all pairs of instances at the given distances."""
        moved = distances.translation()
        counts = self.counts.of(self.source, self.depth), self.counts.of(self.sink, self.depth)
        return counts[0].apply_range(moved).apply_range(counts[1].reverse())

    # Distances

    def _by_distance(
        self, within: isl.Set, direction: tuple[Direction, ...]
    ) -> Iterator[tuple[isl.Set, tuple[str, ...], str | None]]:
        """Cut the distances of one direction; yields what selects a part, and its distance."""
        whole = orthant(direction)
        fixed = [within.plain_get_val_if_fixed(_SET, n) for n in range(self.depth)]
        if all(not value.is_nan() for value in fixed):
            yield whole, tuple(str(value) for value in fixed), None
            return
        if within.n_basic_set() > MOST_CONVEX:
            yield from self._many_parts(within, whole)
            return
        if isl.Map.from_range(within).is_single_valued():
            yield from self._functions(within)
            return
        points = _few_points(within)
        if points is not None:
            for point in points:
                yield _point_set(point), tuple(str(value) for value in point), None
            return
        yield from self._convex_parts(within, whole)

    def _many_parts(
        self, within: isl.Set, whole: isl.Set
    ) -> Iterator[tuple[isl.Set, tuple[str, ...], str | None]]:
        """Cut a union of many parts where each is a single distance, else leave it whole."""
        basics = within.get_basic_set_list()
        parts = [isl.Set.from_basic_set(basics.get_at(n)) for n in range(basics.n_basic_set())]
        vectors = [
            tuple(part.plain_get_val_if_fixed(_SET, n) for n in range(self.depth)) for part in parts
        ]
        if all(not value.is_nan() for vector in vectors for value in vector):
            for point in sorted({tuple(int(v.to_python()) for v in vec) for vec in vectors}):
                yield _point_set(point), tuple(str(value) for value in point), None
            return
        entries = []
        for column in zip(*vectors, strict=True):
            values = {str(value) for value in column}
            entries.append(values.pop() if len(values) == 1 and "NaN" not in values else "*")
        yield whole, tuple(entries), self._set_text(within)

    def _functions(self, within: isl.Set) -> Iterator[tuple[isl.Set, tuple[str, ...], str | None]]:
        """Split a set with one distance for all sizes by the expressions of that distance."""
        found: dict[tuple[str, ...], isl.Set] = {}
        pieces: list[tuple[isl.Set, isl.MultiAff]] = []
        _least(within).foreach_piece(lambda s, m: pieces.append((s, m)))
        names = _short_names(self.model)
        for where, values in pieces:
            shown = tuple(_affine_text(values.get_at(n), names) for n in range(self.depth))
            part = within.intersect_params(where)
            found[shown] = found[shown].union(part) if shown in found else part
        if len(found) == 1:
            yield within, next(iter(found)), None
            return
        for shown in sorted(found):
            yield found[shown], shown, None

    def _convex_parts(
        self, within: isl.Set, whole: isl.Set
    ) -> Iterator[tuple[isl.Set, tuple[str, ...], str | None]]:
        """Take from a union of few parts those that are a single distance for all sizes.

        Args:
            within: The distances, which the caller has found not to be a single one.
            whole: What they are distances of.
        """
        within = within.coalesce()
        basics = within.get_basic_set_list()
        if basics.n_basic_set() == 1:
            yield whole, self._entries(within), self._set_text(within)
            return
        rest = isl.Set.empty(within.get_space())
        single = []
        for number in range(basics.n_basic_set()):
            part = isl.Set.from_basic_set(basics.get_at(number))
            if isl.Map.from_range(part).is_single_valued():
                single.append(part)
            else:
                rest = rest.union(part)
        seen = rest
        found: dict[tuple[str, ...], isl.Set] = {}
        for part in single:
            new = part.subtract(seen)
            for some, shown, _ in () if new.is_empty() else self._functions(new):
                found[shown] = found[shown].union(some) if shown in found else some
            seen = seen.union(part)
        for shown, some in found.items():
            yield some, shown, None
        if not rest.is_empty():
            yield rest if single else whole, self._entries(rest), self._set_text(rest)

    def _entries(self, distances: isl.Set) -> tuple[str, ...]:
        return tuple(self._entry(distances, number) for number in range(self.depth))

    def _entry(self, distances: isl.Set, number: int) -> str:
        value = distances.plain_get_val_if_fixed(_SET, number)
        if not value.is_nan():
            return str(value)
        alone = distances.project_out(_SET, number + 1, self.depth - number - 1)
        alone = alone.project_out(_SET, 0, number)
        if not isl.Map.from_range(alone).is_single_valued():
            return "*"
        pieces: list[isl.MultiAff] = []
        _least(alone).coalesce().foreach_piece(lambda _, m: pieces.append(m))
        names = _short_names(self.model)
        shown = {_affine_text(piece.get_at(0), names) for piece in pieces}
        return shown.pop() if len(shown) == 1 else "*"

    def _set_text(self, distances: isl.Set) -> str:
        shown = distances.reset_tuple_id()
        if shown.n_basic_set() <= MOST_SHORTENED:
            shown = shown.gist_params(self.counts.context)
        for number, name in enumerate(_shown_names(self.model)):
            shown = shown.set_dim_name(_PARAM, number, name)
        used = set(self.model.parameters)
        for number, loop in enumerate(self.source.loops[: self.depth]):
            name = loop.variable if loop.variable not in used else f"{loop.variable}'"
            shown = shown.set_dim_name(_SET, number, name)
        for number in reversed(range(len(self.model.parameters))):
            if not shown.involves_dims(_PARAM, number, 1):
                shown = shown.project_out(_PARAM, number, 1)
        return str(shown)


def _shown_names(model: Model) -> list[str]:
    """Return the parameters' names as isl may write a number before them: `2(H * W)`."""
    factors = model.normalizer.factors
    return [f"({name})" if name in factors else name for name in model.parameters]


def _short_names(model: Model) -> list[str]:
    """Return the parameters' names as terms of a sum: `H*W`, `(H // W)`."""
    factors = model.normalizer.factors
    return [name.replace(" * ", "*") if name in factors else name for name in model.parameters]


def _least(distances: isl.Set) -> isl.PwMultiAff:
    """Return the least distance for each value of the parameters.

    What rounding leaves open in a set is solved for first: else isl finds no least element of some
    sets that have one, as of the distances -2 between i and o, both in 0..3, where i + o is even
    and i + o - 2 <= 2 * floor((i + 1) / 2) <= i + o.
    """
    return distances.compute_divs().lexmin_pw_multi_aff()


def _start_is_affine(bound: Bound) -> bool:
    return not opaque_terms(bound.range.start)


def _point_set(point: tuple[int, ...]) -> isl.Set:
    return isl.Set(f"{{ [{', '.join(str(value) for value in point)}] }}")


def _few_points(distances: isl.Set) -> list[tuple[int, ...]] | None:
    """Return the distances over all sizes if they are few, else None."""
    whole = distances.project_out(_PARAM, 0, distances.dim(_PARAM))
    if not whole.is_bounded():
        return None
    count, depth = 1, whole.dim(_SET)
    for number in range(depth):
        low, high = whole.dim_min_val(number), whole.dim_max_val(number)
        count *= int(high.to_python()) - int(low.to_python()) + 1
        if count > MOST_POINTS**2:
            return None
    points: list[tuple[int, ...]] = []

    def keep(point: isl.Point) -> None:
        values = (point.get_coordinate_val(_SET, n).to_python() for n in range(depth))
        points.append(tuple(int(value) for value in values))

    whole.foreach_point(keep)
    return sorted(points) if len(points) <= MOST_POINTS else None


def _affine_text(value: isl.Aff, names: list[str]) -> str:
    """Print an affine function of the parameters, as `1-D`, `2*N-1` or `N-2*(N//2)`."""
    terms: list[tuple[int, str]] = []
    denominator = int(value.get_denominator_val().to_python())
    constant = value.get_constant_val().mul(isl.Val(denominator))
    if not constant.is_zero():
        terms.append((int(constant.to_python()), ""))
    for number, name in enumerate(names):
        coefficient = value.get_coefficient_val(_PARAM, number).mul(isl.Val(denominator))
        if not coefficient.is_zero():
            terms.append((int(coefficient.to_python()), name))
    for number in range(value.dim(isl.dim_type.div)):
        coefficient = value.get_coefficient_val(isl.dim_type.div, number)
        coefficient = coefficient.mul(isl.Val(denominator))
        if not coefficient.is_zero():
            inner = _affine_text(value.get_div(number), names)
            terms.append((int(coefficient.to_python()), f"({inner})"))
    ordered = [t for t in terms if t[0] > 0] + [t for t in terms if t[0] < 0]
    text = ""
    for factor, name in ordered:
        size = abs(factor)
        shown = str(size) if not name else name if size == 1 else f"{size}*{name}"
        text += ("-" if factor < 0 else "+" if text else "") + shown
    if denominator == 1:
        return text or "0"
    return f"({text})//{denominator}" if len(terms) > 1 or "*" in text else f"{text}//{denominator}"

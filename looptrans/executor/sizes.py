"""The values of a program's parameters: given, inferred from arrays, or found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from looptrans.executor.equations import determined, equations, solved, steps
from looptrans.executor.errors import InputMismatch, NoInputsFound
from looptrans.ir.affine import Form
from looptrans.ir.condition import compared
from looptrans.ir.evaluate import Evaluator, Unknown
from looptrans.ir.index import Index, Int, Param, parameters, walk
from looptrans.ir.listing import contract_text, index_text
from looptrans.ir.program import Array, Contract, Program
from looptrans.ir.quotients import whole_quotients

FIRST_DEFAULT = 4
OTHER_VALUES = (2, 3, 4, 5, 6, 8, 1, 7, 9, 10, 12, 16, 18, 20, 24, 32, 0)
LARGEST = 10_000
"""How large a size may be that an equation determines, where nobody gave it."""
MOST_TRIES = 200_000


@dataclass(frozen=True, slots=True)
class Extent:
    """A dimension of a given array, and what its annotation says about it."""

    array: Array
    dimension: int
    declared: Index
    actual: int

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"dimension {self.dimension} of {self.array.name}"


@dataclass(slots=True)
class Sizes:
    """Values of integer parameters, each with where it came from."""

    program: Program
    values: dict[str, int] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    _sums: tuple[Form, ...] = ()

    def put(self, name: str, value: int, origin: str) -> None:
        """Note a value.

        Raises:
            InputMismatch: It has another value already; the message names both places.
        """
        if self.values.setdefault(name, value) != value:
            raise InputMismatch(
                f"{name} is {self.values[name]} by {self.origins[name]}, and {value} by {origin}",
                self.program.parameter(name).span,
                remedy="give arrays and sizes that agree",
            )
        self.origins.setdefault(name, origin)

    def infer(self, extents: list[Extent]) -> None:
        """Take sizes from the extents of given arrays: names first, then expressions."""
        for extent in extents:
            if isinstance(extent.declared, Param):
                self.put(extent.declared.name, extent.actual, extent.place)
        pending = list(extents)
        while True:
            solved = [extent for extent in pending if self._solve(extent)]
            if not solved:
                return
            pending = [extent for extent in pending if extent not in solved]

    def _solve(self, extent: Extent) -> bool:
        """Solve `N+1 = 5` for the one size that is not known, where that is linear in it."""
        unknown = [name for name in parameters(extent.declared) if name not in self.values]
        if len(unknown) != 1:
            return False
        (name,) = unknown
        at = []
        for trial in (0, 1, 2):
            try:
                at.append(Evaluator(self.values | {name: trial}).index(extent.declared, {}))
            except (Unknown, ZeroDivisionError):
                return False
        slope = at[1] - at[0]
        if slope == 0 or at[2] - at[1] != slope or (extent.actual - at[0]) % slope:
            return False
        self.put(name, (extent.actual - at[0]) // slope, extent.place)
        return True

    def check(self, extents: list[Extent]) -> None:
        """Compare the extents of given arrays with what the sizes say.

        Raises:
            InputMismatch: One is different.
        """
        for extent in extents:
            try:
                expected = Evaluator(self.values).index(extent.declared, {})
            except (Unknown, ZeroDivisionError):
                continue
            if expected != extent.actual:
                text = index_text(extent.declared)
                mentioned = parameters(extent.declared)
                known = ", ".join(
                    f"{name} is {self.values[name]} by {self.origins[name]}" for name in mentioned
                )
                raise InputMismatch(
                    f"{extent.place} is {extent.actual}, and should be {text}"
                    + ("" if isinstance(extent.declared, Int) else f" = {expected}"),
                    extent.array.span,
                    why=known,
                    remedy="give arrays and sizes that agree",
                )

    def complete(self, extents: list[Extent]) -> None:
        """Find values for the sizes nobody gave: small, different, and true to the contracts.

        Raises:
            NoInputsFound: There are none among the small numbers.
        """
        open_names = [
            p.name for p in self.program.parameters if p.is_integer and p.name not in self.values
        ]
        defaults = {
            name: default
            for name, number in zip(open_names, count(FIRST_DEFAULT), strict=False)
            for default in (self._default(name, number),)
        }
        contracts = [c for c in self.program.contracts if _mentions(c, open_names)]
        # What is known already is compared elsewhere, where the message can say more.
        extents = [e for e in extents if set(parameters(e.declared)) & set(open_names)]
        self._sums, sums = tuple(equations(self.program)), determined(self.program)
        for names in self._together(open_names, contracts, extents):
            names.sort(key=lambda name: steps(name, sums))
            own = [c for c in contracts if _mentions(c, names)]
            about = [e for e in extents if set(parameters(e.declared)) & set(names)]
            if any(self._search(names, defaults, own, about, count(), w) for w in (True, False)):
                continue
            text = "; ".join(contract_text(contract) for contract in own)
            given = [n for n in self.values if any(_mentions(c, [n]) for c in own)]
            wanted = ",".join(f"{name}=…" for name in names)
            raise NoInputsFound(
                f"no small values of {', '.join(names)} satisfy {text or 'the shapes'}",
                own[0].span if own else None,
                remedy=f"give them: --sizes {wanted}"
                + (f", or other values of {', '.join(given)}" if given else ""),
            )

    def _together(
        self, names: list[str], contracts: list[Contract], extents: list[Extent]
    ) -> list[list[str]]:
        """Return the sizes that are to be found together: what is asked of one is of another."""
        asked = [_names_in(contract) for contract in contracts]
        asked += [parameters(extent.declared) for extent in extents]
        asked += [parameters(quotient) for quotient in whole_quotients(self.program)]
        for array in self.program.arrays:
            asked += [parameters(extent) for extent in array.extents]
            asked.append(tuple(n for end in array.value_range or () for n in parameters(end)))
        found = [{name} for name in names]
        for each in asked:
            tied = [part for part in found if not part.isdisjoint(each)]
            found = [part for part in found if part not in tied]
            found += [set[str]().union(*tied)] if tied else []
        parts = (sorted(part, key=names.index) for part in found)
        return sorted(parts, key=lambda part: names.index(part[0]))

    def _default(self, name: str, number: int) -> int:
        parameter = self.program.parameter(name)
        if isinstance(parameter.default, int):
            return parameter.default
        return 1 if parameter.kind == "stride" else number

    def _search(
        self,
        names: list[str],
        defaults: Mapping[str, int],
        contracts: list[Contract],
        extents: list[Extent],
        tries: Iterator[int],
        whole: bool,
    ) -> bool:
        if not names:
            return True
        found = (n for n in names if any(True for _ in solved(self._sums, n, self.values)))
        name = next(found, names[0])
        rest = [other for other in names if other != name]
        values = [defaults[name], *OTHER_VALUES, *_near_numbers(contracts, name)]
        asked = [v for v in solved(self._sums, name, self.values) if 0 <= v <= LARGEST]
        for value in dict.fromkeys(asked or values):
            if next(tries) > MOST_TRIES:
                return False
            self.values[name] = value
            possible = self._possible(contracts, extents) and (not whole or self._divides())
            if possible and self._search(rest, defaults, contracts, extents, tries, whole):
                self.origins[name] = "default"
                return True
        del self.values[name]
        return False

    def _divides(self) -> bool:
        """Tell whether quotients such as `H//R` come out whole and not 0, as they are meant to."""
        evaluator = Evaluator(self.values)
        for part in whole_quotients(self.program):
            try:
                left = evaluator.index(part.left, {})
                right = evaluator.index(part.right, {})
            except (Unknown, ZeroDivisionError):
                continue
            if right and not self._is_given(part) and (left % right or left < right):
                return False
        return True

    def _is_given(self, declared: Index) -> bool:
        return all(name in self.origins for name in parameters(declared))

    def _possible(self, contracts: list[Contract], extents: list[Extent]) -> bool:
        """Tell whether nothing that can be computed already is violated."""
        evaluator = Evaluator(self.values)
        try:
            for contract in contracts:
                try:
                    for variables in evaluator.instances(contract.generators, {}):
                        if not evaluator.holds(contract.condition, variables):
                            return False
                except Unknown:
                    continue
            for extent in extents:
                try:
                    if evaluator.index(extent.declared, {}) != extent.actual:
                        return False
                except Unknown:
                    continue
            for array in self.program.arrays:
                for declared in array.shape:
                    try:
                        if declared is None or self._is_given(declared):
                            continue
                        if evaluator.index(declared, {}) < 0:
                            return False
                    except Unknown:
                        continue
                if array.value_range is None or all(map(self._is_given, array.value_range)):
                    continue
                try:
                    low, high = (evaluator.index(end, {}) for end in array.value_range)
                except Unknown:
                    continue
                if high <= low:
                    return False
        except ZeroDivisionError:
            return False
        return True


def _near_numbers(contracts: list[Contract], name: str) -> list[int]:
    """Return numbers that contracts name beside a size, and those next to them: 513 of F > 512."""
    numbers = {
        part.value
        for contract in contracts
        if _mentions(contract, [name])
        for index in compared(contract.condition)
        for part in walk(index)
        if isinstance(part, Int)
    }
    return [
        n
        for number in sorted(numbers)
        for n in (number + 1, number, number - 1)
        if 0 <= n <= LARGEST
    ]


def _names_in(contract: Contract) -> tuple[str, ...]:
    """Return the parameters that a contract is about, in order of first appearance."""
    found = compared(contract.condition)
    for generator in contract.generators:
        ends = generator.range
        found += [ends.start, ends.stop, *compared(generator.condition)]
    return tuple(dict.fromkeys(name for index in found for name in parameters(index)))


def _mentions(contract: Contract, names: list[str]) -> bool:
    return not set(names).isdisjoint(_names_in(contract))

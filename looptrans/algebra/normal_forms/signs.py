"""What is known of normal forms: signs, what is the larger, what a case leaves open.

    E(s1) + s2, s2 >= 0     positive
    M = max(s1, x1)         M - s1 >= 0, M - x1 >= 0

A sign is read off the terms where it can be; else it follows, or not, from inequalities: those of
the case at hand and those that maxima bring along.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction

import sympy

from looptrans.algebra.normal_forms.atoms import (
    OO,
    Atom,
    Case,
    Expr,
    Leaf,
    cancelled,
    expressions_in,
    is_zero_or_one,
    key_text,
    leaves_of,
    product_sign,
)
from looptrans.algebra.normal_forms.ordering import Inequality, can_hold, follows
from looptrans.algebra.positional.numbers import Domain


@dataclass(slots=True)
class Signs:
    """Atoms with their symbols, and what is known of fractions of them.

    Attributes:
        domain: What is known of the names.
        minus_infinity: Names that are -inf.
        case: What is supposed besides.
        atoms: The symbol of every atom.
        meaning: The atom of every symbol.
    """

    domain: Domain = field(default_factory=Domain)
    minus_infinity: frozenset[str] = frozenset()
    case: Case = field(default_factory=Case)
    atoms: dict[Atom, Expr] = field(default_factory=dict)
    meaning: dict[Expr, Atom] = field(default_factory=dict)
    _lowest: dict[Expr, Expr] = field(default_factory=dict)
    _inequalities: dict[Expr, Inequality] = field(default_factory=dict)

    def reduced(self, expr: Expr) -> Expr:
        """Return a fraction in lowest terms."""
        if expr.is_Symbol or expr.is_Rational or expr in (OO, -OO):
            return expr
        found = self._lowest.get(expr)
        if found is None:
            found = self._without_squares(cancelled(expr))
            self._lowest[expr] = found
            self._lowest[found] = found
        return found

    def _without_squares(self, expr: Expr) -> Expr:
        """Replace the squares of roots by what the roots are of, and those of 1 or 0 by it."""
        squares = {}
        for symbol in expr.free_symbols:
            atom = self.meaning.get(symbol)
            if atom is not None and (atom.kind == "root" or is_zero_or_one(atom)):
                for part in expr.atoms(sympy.Pow):
                    base, times = part.as_base_exp()
                    if base == symbol and times.is_Integer and abs(times) > 1:
                        whole, rest = divmod(int(times), 2)
                        squares[part] = (
                            atom.parts[0] ** whole * symbol**rest
                            if atom.kind == "root"
                            else symbol ** sympy.sign(times)
                        )
        return self.reduced(expr.xreplace(squares)) if squares else expr

    def symbol(self, atom: Atom) -> Expr:
        """Return the symbol of an atom."""
        found = self.atoms.get(atom)
        if found is not None:
            return found
        number = len(self.atoms)
        if atom.kind == "name":
            name = atom.parts[0]
            positive = name in self.domain.positive
            nonnegative = name in self.domain.nonnegative
        else:
            name = f"_{number}_"
            positive = atom.kind == "exp" or (
                atom.kind == "max" and any(self.sign(part) > 0 for part in atom.parts)
            )
            if atom.kind == "log" and atom.parts[0].is_Integer and atom.parts[0] > 1:
                positive = True
            nonnegative = atom.kind == "root" or is_zero_or_one(atom)
        if positive:
            symbol = sympy.Symbol(name, positive=True)
        elif nonnegative:
            symbol = sympy.Symbol(name, nonnegative=True)
        else:
            symbol = sympy.Symbol(name, real=True)
        self.atoms[atom] = symbol
        self.meaning[symbol] = atom
        return symbol

    def holds(self, leaf: Leaf) -> bool | None:
        """Tell whether a leaf holds in the case at hand; None if that is open."""
        if leaf.kind == "truth":
            return dict(self.case.truths).get(leaf.subject)
        if leaf.kind == "eq":
            if leaf.subject == 0:
                return True
            return False if self._is_strict(leaf.subject) else None
        strict = leaf.kind == "gt"
        quick = self._quick_sign(leaf.subject)
        if quick == "+" or (quick == "0+" and not strict):
            return True
        opposite = self._quick_sign(-leaf.subject)
        if opposite == "+" or (opposite == "0+" and strict):
            return False
        goal = self.inequality(leaf.subject, strict=strict)
        known = self._known(leaf.subject)
        if follows(goal, known):
            return True
        return False if follows(goal.opposite(), known) else None

    def _is_strict(self, expr: Expr) -> bool:
        known = self._known(expr)
        return follows(self.inequality(expr, strict=True), known) or follows(
            self.inequality(-expr, strict=True), known
        )

    def is_at_least(self, a: Expr, b: Expr) -> bool:
        """Tell whether a >= b is certain."""
        gap = self.reduced(a - b)
        if gap.is_Rational:
            return bool(gap >= 0)
        return self.is_nonnegative(gap)

    def is_nonnegative(self, expr: Expr) -> bool:
        """Tell whether a normal form is surely not negative."""
        if self._quick_sign(expr) is not None and self._quick_sign(expr) in ("+", "0+"):
            return True
        if not self.case.orders and not self._has_maxima(expr):
            return False
        return follows(self.inequality(expr, strict=False), self._known(expr))

    def _has_maxima(self, expr: Expr) -> bool:
        return any(self.meaning[s].kind == "max" for s in expr.free_symbols if s in self.meaning)

    def sign(self, expr: Expr) -> int:
        """Return 1 for what is surely positive, -1 for surely negative, 0 where that is open."""
        if expr in (OO, -OO):
            return 1 if expr == OO else -1
        expr = self.reduced(expr)
        for candidate, result in ((expr, 1), (-expr, -1)):
            if self._quick_sign(candidate) == "+":
                return result
        if self.case.orders:
            for candidate, result in ((expr, 1), (-expr, -1)):
                if follows(self.inequality(candidate, strict=True), self._known(expr)):
                    return result
        return 0

    def _quick_sign(self, expr: Expr) -> str | None:
        """Return `+` or `0+` where every term of numerator and denominator says so."""
        top, bottom = sympy.fraction(expr)
        signs = [self._sum_sign(top), self._sum_sign(bottom)]
        if signs[1] != "+":
            return None
        return signs[0]

    def _sum_sign(self, expr: Expr) -> str | None:
        any_positive = False
        for term in sympy.Add.make_args(sympy.expand(expr)):
            sign = product_sign(term)
            if sign is None:
                return None
            any_positive = any_positive or sign == "+"
        return "+" if any_positive else "0+"

    def inequality(self, expr: Expr, *, strict: bool) -> Inequality:
        """Return `expr >= 0` (or `> 0`) over products of symbols."""
        found = self._inequalities.get(expr)
        if found is None:
            found = self._inequality(expr)
            self._inequalities[expr] = found
        return replace(found, strict=strict)

    def _inequality(self, expr: Expr) -> Inequality:
        top, bottom = sympy.fraction(self.reduced(expr))
        if not bottom.is_Rational and self._sum_sign(bottom) != "+":
            top, bottom = expr, sympy.Integer(1)
        terms: dict[str, Fraction] = {}
        constant = Fraction(0)
        for term in sympy.Add.make_args(sympy.expand(top)):
            factor, rest = term.as_coeff_Mul()
            amount = Fraction(int(factor.p), int(factor.q))
            if rest == 1:
                constant += amount
            else:
                terms[str(rest)] = terms.get(str(rest), Fraction(0)) + amount
        kept = tuple(sorted((name, factor) for name, factor in terms.items() if factor))
        return Inequality(kept, constant, strict=False)

    def _known(self, expr: Expr) -> list[Inequality]:
        """Return what is known of the symbols that matter for an expression."""
        known = list(self.case.orders)
        names = {name for item in known for name, _ in item.terms}
        symbols = [s for s in self.meaning if s in expr.free_symbols or str(s) in names]
        for symbol in symbols:
            atom = self.meaning[symbol]
            if atom.kind == "max":
                known += [self.inequality(symbol - part, strict=False) for part in atom.parts]
            if symbol.is_nonnegative:
                known.append(self.inequality(symbol, strict=bool(symbol.is_positive)))
        return known

    def is_possible(self, case: Case) -> bool:
        """Tell whether a case can occur; False is certain."""
        kept, self.case = self.case, case
        known = self._known(sympy.Integer(0))
        self.case = kept
        return can_hold(known)

    def with_leaf(self, case: Case, leaf: Leaf, held: bool) -> Case | None:
        """Return a case in which a leaf is decided; None where that cannot be written down."""
        if leaf.kind == "truth":
            text = f"{leaf.subject} is {'true' if held else 'false'}"
            return replace(
                case, truths=(*case.truths, (leaf.subject, held)), texts=(*case.texts, text)
            )
        if leaf.kind == "eq":
            return None
        goal = self.inequality(leaf.subject, strict=leaf.kind == "gt")
        sign = {("gt", True): ">", ("gt", False): "<=", ("ge", True): ">=", ("ge", False): "<"}
        text = f"{self.text(leaf.subject)} {sign[leaf.kind, held]} 0"
        return replace(
            case,
            orders=(*case.orders, goal if held else goal.opposite()),
            texts=(*case.texts, text),
        )

    def with_equal(self, case: Case, leaf: Leaf) -> Case | None:
        """Return a case in which an expression is zero; None where no name can be solved for."""
        for symbol in sorted(leaf.subject.free_symbols, key=str):
            atom = self.meaning[symbol]
            factor = leaf.subject.coeff(symbol)
            if atom.kind == "name" and factor.is_Rational and factor != 0:
                rest = self.reduced(symbol - leaf.subject / factor)
                if symbol not in self._all_symbols(rest):
                    text = f"{atom.parts[0]} = {self.text(rest)}"
                    equal = (*case.equal, (atom.parts[0], rest))
                    return replace(case, equal=equal, texts=(*case.texts, text))
        return None

    def names_in(self, expr: Expr) -> frozenset[str]:
        """Return the names a normal form depends on, those inside atoms too."""
        if expr in (OO, -OO):
            return frozenset()
        found = self._all_symbols(expr)
        return frozenset(self.meaning[s].parts[0] for s in found if self.meaning[s].kind == "name")

    def _all_symbols(self, expr: Expr) -> set[Expr]:
        found: set[Expr] = set()
        queue = list(expr.free_symbols)
        while queue:
            symbol = queue.pop()
            if symbol not in found:
                found.add(symbol)
                atom = self.meaning.get(symbol)
                if atom is not None:
                    for part in expressions_in(atom.parts):
                        queue += part.free_symbols
                    if atom.kind == "select":
                        for leaf in leaves_of(atom.parts[0]):
                            if leaf.kind == "truth":
                                queue.append(self.symbol(Atom("name", (leaf.subject,))))
                            else:
                                queue += leaf.subject.free_symbols
        return found

    def open_leaves(self, expr: Expr) -> list[Leaf]:
        """Return what a normal form leaves open, inner things first."""
        found: dict[Leaf, None] = {}
        seen: set[Expr] = set()

        def visit(part: Expr) -> None:
            for symbol in sorted(part.free_symbols, key=str):
                if symbol in seen:
                    continue
                seen.add(symbol)
                atom = self.meaning.get(symbol)
                if atom is None or atom.kind == "name":
                    continue
                for inner in expressions_in(atom.parts):
                    visit(inner)
                if atom.kind == "max":
                    found[Leaf("ge", self.reduced(atom.parts[0] - atom.parts[1]))] = None
                if atom.kind == "select":
                    for leaf in leaves_of(atom.parts[0]):
                        if not isinstance(leaf.subject, str):
                            visit(leaf.subject)
                        found[leaf] = None

        visit(expr)
        return [leaf for leaf in found if self.holds(leaf) is None]

    def is_zero(self, expr: Expr) -> bool:
        """Tell whether a normal form is zero, squares of roots worked out."""
        top = sympy.fraction(self.reduced(expr))[0]
        roots = [s for s, atom in self.meaning.items() if atom.kind == "root"]
        for root in reversed(roots):
            if root in top.free_symbols:
                base = sympy.fraction(self.meaning[root].parts[0])
                top = sympy.rem(sympy.expand(top), base[1] * root**2 - base[0], root)
                top = sympy.fraction(self.reduced(top))[0]
        return bool(top == 0)

    def text(self, expr: Expr) -> str:
        """Return a normal form to be read, its atoms written out."""

        def written(match: re.Match[str]) -> str:
            symbol = next(s for s in self.meaning if s.name == match.group())
            return self._atom_text(self.meaning[symbol])

        text = str(expr)
        while "_" in text:
            changed = re.sub(r"_\d+_", written, text)
            if changed == text:
                break
            text = changed
        return text

    def _atom_text(self, atom: Atom) -> str:
        match atom.kind:
            case "exp" | "log" | "max":
                return f"{atom.kind}({', '.join(map(str, atom.parts))})"
            case "root":
                return f"sqrt({atom.parts[0]})"
            case "select":
                _, chosen, otherwise = atom.parts
                return f"select({key_text(atom.parts[0])}, {chosen}, {otherwise})"
            case "function":
                name, *arguments = atom.parts
                return f"{name}({', '.join(map(str, arguments))})"
            case _:
                return str(atom.parts[0])

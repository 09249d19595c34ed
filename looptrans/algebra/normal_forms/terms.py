"""Values as rational functions of atoms, the normal form in which equal expressions look alike.

    s2 * exp(s1 - max(s1, x1)) + exp(x1 - max(s1, x1))   ->   (s2 * E(s1) + E(x1)) / E(M)

An atom is a name, `E(t) = exp(t)` of a product t, a maximum `M` of normal forms, a logarithm, or
any other function of normal forms. An exponential of a sum is a product of atoms, so the rest is
arithmetic of fractions, which sympy cancels. Two values with one normal form are equal wherever
both are defined; the converse does not hold, which is why `normal.py` also tries the orders of the
arguments of maxima one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import sympy

from looptrans.algebra.normal_forms.atoms import (
    COMPARED,
    OO,
    Atom,
    Case,
    Expr,
    Leaf,
    NotANumber,
    Undefined,
    number_of,
)
from looptrans.algebra.normal_forms.signs import Signs
from looptrans.ir.condition import Condition, Data, Every, Not, Some, Truth
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    Holds,
    Real,
    Select,
    Unary,
    Value,
    condition_of,
)

_IDENTITIES = ("float", "float64", "stop_gradient", "copy")


class _Restart(Exception):
    """An exponent needs a finer unit than the ones before it were written in."""


@dataclass(slots=True)
class Terms(Signs):
    """Turns values into normal forms, under what is known of their names.

    Attributes:
        needs: What must hold for the values to be defined, beyond what is known.
    """

    needs: dict[str, None] = field(default_factory=dict)
    _units: dict[Expr, int] = field(default_factory=dict)
    _memo: dict[Value, Expr] = field(default_factory=dict)

    def normal(self, value: Value) -> Expr:
        """Return the normal form of a value.

        Raises:
            Undefined: It has none: it is not a number.
        """
        while True:
            try:
                return self.reduced(self._normal(value))
            except _Restart:
                self._memo.clear()

    def chosen(self, value: Value, decides: Callable[[Leaf], bool]) -> Expr:
        """Return the normal form of a value as choices of normal forms without choices.

        Args:
            value: A value.
            decides: Which open conditions to bring to the outside.
        """
        form = self.normal(value)
        if form in (OO, -OO):
            return form
        for leaf in self.open_leaves(form):
            both = [self.with_leaf(self.case, leaf, held) for held in (True, False)]
            if not decides(leaf) or None in both:
                continue
            kept, sides = self.case, []
            for case in both:
                assert case is not None
                self.suppose(case)
                sides.append(self.chosen(value, decides))
            self.suppose(kept)
            if sides[0] == sides[1]:
                return sides[0]
            return self._choice((leaf, True), *sides)
        return form

    def suppose(self, case: Case) -> None:
        """Go on under other suppositions."""
        self.case = case
        self._memo.clear()

    def _normal(self, value: Value) -> Expr:
        found = self._memo.get(value)
        if found is None:
            found = self._worked_out(value)
            self._memo[value] = found
        return found

    def _worked_out(self, value: Value) -> Expr:
        match value:
            case Const(literal):
                return number_of(literal)
            case Real(name):
                return self._name(name)
            case Unary(op, operand):
                inner = self._normal(operand)
                return -inner if op == "-" else inner
            case Binary("**", left, right):
                return self._power(self._normal(left), right)
            case Binary(op, left, right):
                return self._binary(op, self._normal(left), self._normal(right))
            case Select(condition, chosen, otherwise):
                return self._select(condition, chosen, otherwise)
            case Call("where", (condition, chosen, otherwise)):
                return self._select(Data(condition), chosen, otherwise)
            case Call(function, arguments):
                return self._call(function, arguments)
            case Holds() | Compare():
                condition = condition_of(value)
                return self._select(condition, Const(1), Const(0))
            case _:
                raise Undefined("it is not over names alone")

    def _name(self, name: str) -> Expr:
        if name in self.minus_infinity:
            return -OO
        for given, expr in self.case.equal:
            if given == name:
                return expr
        return self.symbol(Atom("name", (name,)))

    def _binary(self, op: str, left: Expr, right: Expr) -> Expr:
        if op == "-":
            op, right = "+", -right
        infinite = left in (OO, -OO) or right in (OO, -OO)
        match op:
            case "+":
                if infinite:
                    if left in (OO, -OO) and right in (OO, -OO) and left != right:
                        raise NotANumber("inf - inf")
                    return left if left in (OO, -OO) else right
                return left + right
            case "*":
                return self._times_infinity(left, right) if infinite else left * right
            case "/":
                return self._quotient(left, right)
            case _:
                return self._function(op, (left, right))

    def _times_infinity(self, left: Expr, right: Expr) -> Expr:
        if left in (OO, -OO):
            left, right = right, left
        sign = self.sign(left)
        if left == 0:
            raise NotANumber("0 times inf")
        if sign == 0:
            raise Undefined("a product with inf")
        return right * sign

    def _quotient(self, left: Expr, right: Expr) -> Expr:
        if right in (OO, -OO):
            if left in (OO, -OO):
                raise NotANumber("inf / inf")
            return sympy.Integer(0)
        divisor = self.reduced(right)
        if divisor == 0 and left == 0:
            raise NotANumber("0 / 0")
        if divisor == 0:
            raise Undefined("a division by zero")
        sign = self.sign(divisor)
        if sign == 0:
            self.needs[f"{self.text(divisor)} is not 0"] = None
        if left in (OO, -OO):
            if sign == 0:
                raise Undefined("inf divided by what may have either sign")
            return left * sign
        return left / divisor

    def _power(self, base: Expr, exponent: Value) -> Expr:
        power = self.reduced(self._normal(exponent))
        if power.is_Integer and base not in (OO, -OO):
            if power < 0:
                return self._quotient(sympy.Integer(1), base**-power)
            return base**power
        if power == sympy.Rational(1, 2):
            return self._root(base)
        if base in (OO, -OO) or power in (OO, -OO):
            raise Undefined("a power of inf")
        return self._function("**", (base, power))

    def _call(self, function: str, arguments: tuple[Value, ...]) -> Expr:
        if function in _IDENTITIES:
            return self._normal(arguments[0])
        inner = [self.reduced(self._normal(argument)) for argument in arguments]
        match function:
            case "max" if len(inner) > 1:
                return self._maximum(inner)
            case "min" if len(inner) > 1:
                return -self._maximum([-part for part in inner])
            case "abs":
                return self._maximum([inner[0], -inner[0]])
            case "exp":
                return self._exponential(inner[0])
            case "exp2":
                return self._exponential(self._binary("*", inner[0], self.logarithm_of(2)))
            case "log":
                return self._logarithm(inner[0])
            case "log2":
                return self._logarithm(inner[0]) / self.logarithm_of(2)
            case "sqrt":
                return self._root(inner[0])
            case _:
                return self._function(function, tuple(inner))

    def _function(self, name: str, arguments: tuple[Expr, ...]) -> Expr:
        inner = tuple(self.reduced(argument) for argument in arguments)
        if any(part in (OO, -OO) for part in inner):
            raise Undefined(f"{name} of inf")
        return self.symbol(Atom("function", (name, *inner)))

    def _root(self, base: Expr) -> Expr:
        base = self.reduced(base)
        if base in (OO, -OO):
            raise Undefined("a root of inf")
        exact = self._exact_root(base)
        if exact is not None:
            return exact
        if not self.is_nonnegative(base):
            self.needs[f"{self.text(base)} is not negative"] = None
        return self.symbol(Atom("root", (base,)))

    def _exact_root(self, base: Expr) -> Expr | None:
        root: Expr = sympy.Integer(1)
        for part, sign in zip(sympy.fraction(base), (1, -1), strict=True):
            content, factors = sympy.factor_list(part)
            number = sympy.sqrt(content)
            if not number.is_Rational or any(times % 2 for _, times in factors):
                return None
            if not all(self.is_nonnegative(factor) for factor, _ in factors):
                return None
            root *= sympy.Mul(number, *(f ** (times // 2) for f, times in factors)) ** sign
        return root

    def _exponential(self, exponent: Expr) -> Expr:
        if exponent == -OO:
            return sympy.Integer(0)
        if exponent == OO:
            return OO
        top, bottom = sympy.fraction(exponent)
        product: Expr = sympy.Integer(1)
        for term in sympy.Add.make_args(sympy.expand(top)):
            factor, rest = self.reduced(term / bottom).as_coeff_Mul()
            if factor == 0:
                continue
            atom = self.meaning.get(rest)
            if atom is not None and atom.kind == "log" and factor.is_Integer:
                product *= atom.parts[0] ** factor
                continue
            unit = self._units.get(rest, 1)
            needed = lcm(unit, int(factor.q))
            if needed != unit:
                restart = rest in self._units
                self._units[rest] = needed
                if restart:
                    raise _Restart
            self._units.setdefault(rest, needed)
            product *= self.symbol(Atom("exp", (rest / needed,))) ** (factor * needed)
        return product

    def logarithm_of(self, number: int) -> Expr:
        """Return the logarithm of a whole number."""
        return self.symbol(Atom("log", (sympy.Integer(number),)))

    def _logarithm(self, argument: Expr) -> Expr:
        if argument == OO:
            return OO
        if argument == 0:
            return -OO
        if argument == -OO:
            raise Undefined("the logarithm of -inf")
        if self.sign(argument) <= 0:
            self.needs[f"{self.text(argument)} is positive"] = None
        total: Expr = sympy.Integer(0)
        top, bottom = sympy.fraction(argument)
        for part, sign in ((top, 1), (bottom, -1)):
            content, factors = sympy.factor_list(part)
            pieces = [(factor, power) for factor, power in factors]
            if content <= 0 or any(self.sign(factor) <= 0 for factor, _ in pieces):
                return self.symbol(Atom("log", (argument,)))
            for prime, power in sympy.factorint(content.p).items():
                total += sign * power * self.logarithm_of(int(prime))
            for prime, power in sympy.factorint(content.q).items():
                total -= sign * power * self.logarithm_of(int(prime))
            for factor, power in pieces:
                atom = self.meaning.get(factor)
                known = atom is not None and atom.kind == "exp"
                inner = (
                    atom.parts[0]
                    if atom is not None and known
                    else self.symbol(Atom("log", (factor,)))
                )
                total += sign * power * inner
        return total

    def _maximum(self, arguments: list[Expr]) -> Expr:
        parts: list[Expr] = []
        for argument in arguments:
            atom = self.meaning.get(argument)
            inner = atom.parts if atom is not None and atom.kind == "max" else (argument,)
            parts.extend(part for part in inner if part != -OO and part not in parts)
        if OO in parts:
            return OO
        if not parts:
            return -OO
        parts = self._undominated(parts)
        if len(parts) == 1:
            return parts[0]
        common = set(sympy.Add.make_args(parts[0]))
        for part in parts[1:]:
            common &= set(sympy.Add.make_args(part))
        shift = sympy.Add(*common)
        kept = sorted((part - shift for part in parts), key=str)
        return self.symbol(Atom("max", tuple(kept))) + shift

    def _undominated(self, parts: list[Expr]) -> list[Expr]:
        kept: list[Expr] = []
        for number, part in enumerate(parts):
            others = [*kept, *parts[number + 1 :]]
            if not any(self.is_at_least(other, part) for other in others):
                kept.append(part)
        return kept

    def _select(self, condition: Condition, chosen: Value, otherwise: Value) -> Expr:
        truth = self.truth(condition)
        if truth is not None:
            return self._normal(chosen if truth else otherwise)
        a, b = self.reduced(self._normal(chosen)), self.reduced(self._normal(otherwise))
        if a == b:
            return a
        if a in (OO, -OO) or b in (OO, -OO):
            raise Undefined("a choice that may be inf")
        if isinstance(condition, Data):
            leaf, sign = self._leaf(condition.value)
            if isinstance(leaf, Leaf) and leaf.kind in ("gt", "ge"):
                gap = leaf.subject if sign else self.reduced(-leaf.subject)
                if self.reduced(a - b - gap) == 0:
                    return self._maximum([a, b])
                if self.reduced(a - b + gap) == 0:
                    return -self._maximum([-a, -b])
        return self._choice(self._key(condition), a, b)

    def _choice(self, key: tuple[Any, ...], a: Expr, b: Expr) -> Expr:
        """Return a choice; one against 0 is a product with 1 or 0, which may cancel."""
        one, zero = sympy.Integer(1), sympy.Integer(0)
        if b == 0:
            return self.symbol(Atom("select", (key, one, zero))) * a
        if a == 0:
            return self.symbol(Atom("select", (key, zero, one))) * b
        return self.symbol(Atom("select", (key, a, b)))

    # What is true in the case at hand.

    def truth(self, condition: Condition) -> bool | None:
        """Tell whether a condition holds; None if the case leaves it open."""
        match condition:
            case Truth(value):
                return value
            case Not(part):
                inner = self.truth(part)
                return None if inner is None else not inner
            case Every(parts) | Some(parts):
                decides = isinstance(condition, Some)
                found = [self.truth(part) for part in parts]
                if decides in found:
                    return decides
                return None if None in found else not decides
            case Data(value):
                leaf, sign = self._leaf(value)
                held = leaf if isinstance(leaf, bool) else self.holds(leaf)
                return None if held is None else held == sign
            case _:
                raise Undefined("a condition on indices")

    def _leaf(self, value: Value) -> tuple[Leaf | bool, bool]:
        """Return what a truth value hangs on, and whether it is that or its opposite."""
        match value:
            case Const(literal):
                return bool(literal), True
            case Holds(condition):
                found = self.truth(condition)
                if found is not None:
                    return found, True
                match condition:
                    case Data(inner):
                        return self._leaf(inner)
                    case _:
                        raise Undefined("a condition inside a condition")
            case Compare(op, left, right):
                return self._comparison(op, left, right)
            case Real(name):
                return Leaf("truth", name), True
            case _:
                return Leaf("eq", self.reduced(self._normal(value))), False

    def _comparison(self, op: str, left: Value, right: Value) -> tuple[Leaf | bool, bool]:
        a, b = self.reduced(self._normal(left)), self.reduced(self._normal(right))
        if a in (OO, -OO) or b in (OO, -OO):
            return bool(COMPARED[op](a, b)), True
        gap = self.reduced(a - b)
        if gap.is_Rational:
            return bool(COMPARED[op](gap, sympy.Integer(0))), True
        match op:
            case ">":
                return Leaf("gt", gap), True
            case ">=":
                return Leaf("ge", gap), True
            case "<":
                return Leaf("ge", gap), False
            case "<=":
                return Leaf("gt", gap), False
            case _:
                flipped = gap if str(gap) <= str(-gap) else self.reduced(-gap)
                return Leaf("eq", flipped), op == "=="

    def _key(self, condition: Condition) -> tuple[Any, ...]:
        match condition:
            case Not(part):
                return ("not", self._key(part))
            case Every(parts):
                return ("and", *(self._key(part) for part in parts))
            case Some(parts):
                return ("or", *(self._key(part) for part in parts))
            case Data(value):
                leaf, sign = self._leaf(value)
                return (leaf, sign)
            case _:
                return (condition,)

"""Normal forms back as values, in the form a person would write.

A product of powers of exponentials becomes one exponential of a sum, a quotient of names a
quotient, and what is common to all terms is not multiplied out again.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import sympy

from looptrans.algebra.normal_forms.atoms import OO, Atom, Expr, Leaf, Undefined, is_zero_or_one
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.values import (
    INFINITY,
    MINUS_INFINITY,
    ONE,
    ZERO,
    add,
    divide,
    exponential,
    multiply,
    negative,
    number,
    power,
)
from looptrans.ir.condition import Condition, Data, Every, Not, Some, Truth
from looptrans.ir.value import Binary, Call, Compare, Const, Real, Select, Value, walk_value

MOST_DIVISOR: Final = 1000
"""What numbers are divided by as quotients: 1 / 3. Beyond it they were written as decimals."""


def value_of(expr: Expr, terms: Terms) -> Value:
    """Return a value whose normal form is `expr`."""
    if expr in (OO, -OO):
        return INFINITY if expr == OO else MINUS_INFINITY
    top, bottom = sympy.fraction(terms.reduced(expr))
    pieces = sympy.Add.make_args(sympy.expand(bottom))
    if len(pieces) == 1:
        return _sum(top, bottom, terms)
    return divide(_sum(top, sympy.Integer(1), terms), _sum(bottom, sympy.Integer(1), terms))


def factored(expr: Expr, terms: Terms) -> Value:
    """Return a value whose normal form is `expr`, as a product of what does not factor further."""
    if expr in (OO, -OO):
        return value_of(expr, terms)
    above: list[Value] = []
    below: list[Value] = []
    exponent: Expr = sympy.Integer(0)
    tested: list[Atom] = []
    sign = 1
    amount = Fraction(1)
    for side, part in zip((1, -1), _pieces(expr, terms), strict=True):
        for factor in sympy.Mul.make_args(part):
            if factor.is_Rational and factor != 0:
                sign = -sign if factor < 0 else sign
                amount *= Fraction(abs(int(factor.p)), int(factor.q)) ** side
                continue
            base, times = factor.as_base_exp()
            atom = terms.meaning.get(base)
            whole = times.is_Integer and times > 0
            if atom is not None and atom.kind == "exp":
                exponent += side * times * atom.parts[0]
            elif atom is not None and is_zero_or_one(atom) and side > 0:
                tested.append(atom)
            elif whole:
                written = power(_sum(base, sympy.Integer(1), terms), int(times))
                (above if side > 0 else below).append(written)
            else:
                written = _sum(factor, sympy.Integer(1), terms)
                (above if side > 0 else below).append(written)
    if exponent != 0:
        above.append(_exponential(exponent, terms))
    numbers: tuple[list[Value], list[Value]] = ([], [])
    _put_number(amount, *numbers)
    above, below = [*numbers[0], *above], [*numbers[1], *below]
    product = multiply(*above)
    if below:
        product = divide(product, multiply(*below))
    return _where(product if sign > 0 else negative(product), tested, terms)


def _pieces(expr: Expr, terms: Terms) -> tuple[Expr, Expr]:
    """Return the factors of a normal form above and below the line.

    A sum of terms that are exponentials each is not parted from those they are divided by, which
    keep them small: `exp(a - m) * x + exp(b - m) * y`.
    """
    top, bottom = sympy.fraction(sympy.factor(terms.reduced(expr)))
    below = [f for f in sympy.Mul.make_args(bottom) if _is_exponential(f, terms)]
    above = sympy.Mul.make_args(top)
    for place, factor in enumerate(above):
        parts = sympy.Add.make_args(factor)
        each = all(
            any(_is_exponential(f, terms) for f in sympy.Mul.make_args(part)) for part in parts
        )
        if below and len(parts) > 1 and each:
            divided = sympy.Mul(*below)
            whole = sympy.Add(*(part / divided for part in parts), evaluate=False)
            rest = sympy.Mul(*above[:place], *above[place + 1 :])
            return sympy.Mul(rest, whole, evaluate=False), bottom / divided
    return top, bottom


def _is_exponential(factor: Expr, terms: Terms) -> bool:
    atom = terms.meaning.get(factor.as_base_exp()[0])
    return atom is not None and atom.kind == "exp"


def _exponential(exponent: Expr, terms: Terms) -> Value:
    """Return `exp` of a normal form, or `exp2` where it is a multiple of log 2 throughout."""
    two = terms.logarithm_of(2)
    halved = terms.reduced(exponent / two)
    if two in exponent.free_symbols and two not in halved.free_symbols:
        return Call("exp2", (_exponent(halved, terms),))
    return exponential(_exponent(exponent, terms))


def _exponent(expr: Expr, terms: Terms) -> Value:
    """Return a product or a sum, whichever takes less: `(x - m) / p`, but `x / p - m`."""
    product, total = factored(expr, terms), value_of(expr, terms)
    return total if _operations(total) < _operations(product) else product


def _operations(value: Value) -> int:
    return sum(not isinstance(part, Real | Const) for part in walk_value(value))


def _sum(top: Expr, bottom: Expr, terms: Terms) -> Value:
    positive: list[Value] = []
    minus: list[Value] = []
    for term in sympy.Add.make_args(sympy.expand(top)):
        factor, value = _term(term, bottom, terms)
        (minus if factor < 0 else positive).append(value)
    total = add(*positive) if positive else ZERO
    for value in minus:
        total = add(total, negative(value)) if total != ZERO else negative(value)
    return total


def _term(term: Expr, bottom: Expr, terms: Terms) -> tuple[int, Value]:
    """Return the sign of `term / bottom` and its size."""
    factor, rest = (term / bottom).as_coeff_Mul()
    if factor == 0:
        return 1, ZERO
    above: list[Value] = []
    below: list[Value] = []
    exponent: list[Expr] = []
    tested: list[Atom] = []
    _put_number(Fraction(abs(int(factor.p)), int(factor.q)), above, below)
    for part in sympy.Mul.make_args(rest):
        if part == 1:
            continue
        base, times = part.as_base_exp()
        atom = terms.meaning[base]
        if atom.kind == "exp":
            exponent.append(times * atom.parts[0])
            continue
        if is_zero_or_one(atom) and times > 0:
            tested.append(atom)
            continue
        written = power(_atom(base, terms), abs(int(times)))
        (above if times > 0 else below).append(written)
    if exponent:
        above.append(_exponential(sympy.Add(*exponent), terms))
    size = multiply(*above) if above else ONE
    if below:
        size = divide(size, multiply(*below))
    return (1 if factor > 0 else -1), _where(size, tested, terms)


def _put_number(amount: Fraction, above: list[Value], below: list[Value]) -> None:
    """Put a number above and below a line: the literal that it was, unless that is a quotient."""
    literal = float(amount)
    if amount.denominator > MOST_DIVISOR and Fraction(repr(literal)) == amount:
        above.append(number(literal))
        return
    if amount.numerator != 1:
        above.append(number(amount.numerator))
    if amount.denominator != 1:
        below.append(number(amount.denominator))


def _where(value: Value, tested: list[Atom], terms: Terms) -> Value:
    """Return a value times what is 1 where conditions hold and 0 elsewhere, as choices."""
    for atom in reversed(tested):
        key, chosen, _ = atom.parts
        sides = (value, ZERO) if chosen == 1 else (ZERO, value)
        value = Select(_condition(key, terms), *sides)
    return value


def _atom(symbol: Expr, terms: Terms) -> Value:
    atom = terms.meaning[symbol]
    match atom.kind:
        case "name":
            return Real(atom.parts[0])
        case "exp":
            return _exponential(atom.parts[0], terms)
        case "log":
            return Call("log", (value_of(atom.parts[0], terms),))
        case "max":
            return Call("max", tuple(value_of(part, terms) for part in atom.parts))
        case "root":
            return Call("sqrt", (value_of(atom.parts[0], terms),))
        case "select":
            key, chosen, otherwise = atom.parts
            return Select(
                _condition(key, terms), value_of(chosen, terms), value_of(otherwise, terms)
            )
        case _:
            name, *arguments = atom.parts
            if name in ("**", "//", "%"):
                left, right = (value_of(argument, terms) for argument in arguments)
                return Binary(name, left, right)
            if not name.isidentifier():
                raise Undefined(f"{name} has no call")
            return Call(name, tuple(value_of(argument, terms) for argument in arguments))


def _condition(key: tuple[object, ...], terms: Terms) -> Condition:
    match key:
        case (Leaf() as leaf, bool(sign)):
            held = _leaf(leaf, terms)
            return Data(held) if sign else Not(Data(held))
        case (bool(held), bool(sign)):
            return Truth(held == sign)
        case ("not", tuple(part)):
            return Not(_condition(part, terms))
        case ("and", *parts):
            return Every(tuple(_condition(p, terms) for p in parts if isinstance(p, tuple)))
        case ("or", *parts):
            return Some(tuple(_condition(p, terms) for p in parts if isinstance(p, tuple)))
        case _:
            raise Undefined("a condition on indices")


def _leaf(leaf: Leaf, terms: Terms) -> Value:
    if leaf.kind == "truth":
        return Real(leaf.subject)
    left = [t for t in sympy.Add.make_args(leaf.subject) if not t.could_extract_minus_sign()]
    right = [-t for t in sympy.Add.make_args(leaf.subject) if t.could_extract_minus_sign()]
    sides = (value_of(sympy.Add(*left), terms), value_of(sympy.Add(*right), terms))
    match leaf.kind:
        case "gt":
            return Compare(">", *sides)
        case "ge":
            return Compare(">=", *sides)
        case _:
            return Compare("==", *sides)

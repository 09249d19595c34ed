"""Steps that are sums under a map: step(s, x) = g^-1(g(s) + h(x)).

For such a step the derivatives are `g'(s) / g'(step)` by s and `h'(x) / g'(step)` by x, so their
quotient is `g'(s) / h'(x)`, a product of a function of s and one of x; that is tested, and g is
the integral. (Abel's way to solve the functional equation of associativity.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from looptrans.algebra.normal_forms.atoms import Expr, Undefined
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.readable import value_of
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.values import add, put
from looptrans.ir.value import Binary, Call, Const, Real, Value


@dataclass(frozen=True, slots=True)
class Conjugation:
    """A map under which a step is a sum.

    Attributes:
        map: g, over the name `y`.
        inverse: Its inverse, over `y`.
        contribution: h, over inputs and parameters.
    """

    map: Value
    inverse: Value
    contribution: Value


def conjugation(form: Expr, terms: Terms, state: str, inputs: list[str]) -> Conjugation | None:
    """Find a map under which a step is a sum; None if this way finds none."""
    names = terms.names_in(form)
    used = [name for name in inputs if name in names]
    step = _function(form, terms)
    if not used or step is None or state not in names:
        return None
    s = next((x for x in step.free_symbols if x.name == state), None)
    x = next((x for x in step.free_symbols if x.name == used[0]), None)
    if s is None or x is None:
        return None
    by_x = sympy.diff(step, x)
    if by_x == 0:
        return None
    ratio = sympy.cancel(sympy.diff(step, s) / by_x)
    for point in (0, 1, 2):
        slope = sympy.cancel(ratio.subs({name: point for name in step.free_symbols if name != s}))
        if slope in (sympy.nan, sympy.zoo, 0) or slope.has(sympy.zoo, sympy.nan, sympy.oo):
            continue
        found = _integrated(slope, s, step, terms, state)
        if found is not None:
            return found
    return None


def _integrated(slope: Expr, s: Expr, step: Expr, terms: Terms, state: str) -> Conjugation | None:
    primitive = sympy.integrate(slope, s, manual=True)
    if primitive.has(sympy.Integral):
        return None
    y = sympy.Symbol("y", real=True)
    outer = primitive.subs(s, y)
    goal = sympy.Symbol("goal", real=True)
    try:
        solutions = sympy.solve(sympy.Eq(outer, goal), y)
        mapped = _value(outer)
        full = _value(step)
    except (NotImplementedError, Undefined):
        return None
    for solution in solutions:
        try:
            inverse = put(_value(solution), {"goal": Real("y")})
            contribution = _value(
                sympy.cancel(sympy.expand(outer.subs(y, step) - outer.subs(y, s)))
            )
        except Undefined:
            continue
        own = Terms(terms.domain)
        try:
            form = own.normal(contribution)
        except Undefined:
            continue
        if state in own.names_in(form):
            continue
        contribution = value_of(form, own)
        joined = add(put(mapped, {"y": Real(state)}), contribution)
        domain = replace(terms.domain, nonnegative=terms.domain.nonnegative | {state})
        if equality(put(inverse, {"y": joined}), full, Assumptions(domain)).answer == "proved":
            return Conjugation(mapped, inverse, contribution)
    return None


def _function(form: Expr, terms: Terms) -> Expr | None:
    """Return a normal form with its atoms as functions; None where one has no derivative."""
    while True:
        symbols = (
            [s for s in form.free_symbols if terms.meaning[s].kind != "name"]
            if all(s in terms.meaning for s in form.free_symbols)
            else []
        )
        if not symbols:
            return form
        replacements = {}
        for symbol in symbols:
            atom = terms.meaning[symbol]
            match atom.kind:
                case "exp":
                    replacements[symbol] = sympy.exp(atom.parts[0])
                case "log":
                    replacements[symbol] = sympy.log(atom.parts[0])
                case "root":
                    replacements[symbol] = sympy.sqrt(atom.parts[0])
                case _:
                    return None
        form = form.subs(replacements)


def _value(expr: Expr) -> Value:
    """Return a sympy expression as a value.

    Raises:
        Undefined: It has a function the language does not know.
    """
    if expr.is_Symbol:
        return Real(expr.name)
    if expr.is_Rational:
        top = Const(float(expr.p))
        return top if expr.q == 1 else Binary("/", top, Const(float(expr.q)))
    if expr.is_Add:
        return add(*(_value(part) for part in sympy.Add.make_args(expr)))
    if expr.is_Mul:
        parts = [_value(part) for part in sympy.Mul.make_args(expr)]
        product = parts[0]
        for part in parts[1:]:
            product = Binary("*", product, part)
        return product
    if isinstance(expr, sympy.exp):
        return Call("exp", (_value(expr.args[0]),))
    if isinstance(expr, sympy.log):
        return Call("log", (_value(expr.args[0]),))
    if expr.is_Pow:
        base, times = expr.args
        if times == sympy.Rational(1, 2):
            return Call("sqrt", (_value(base),))
        if times.is_Integer and times > 0:
            return Binary("**", _value(base), Const(int(times)))
        if times.is_Integer:
            return Binary("/", Const(1.0), _value(base**-times))
    raise Undefined(f"{type(expr).__name__} is not in the language")

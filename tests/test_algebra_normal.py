"""Whether two values are equal: proved, refuted with numbers, or unknown; and nothing else."""

from __future__ import annotations

import random
from typing import Any

import mpmath
import pytest
import sympy
from sympy.polys.rings import sring

from looptrans.algebra.normal_forms.multiplied import expanded, multiplied_out
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.readable import value_of
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.numbers import Domain, NoNumber, differ, evaluate
from looptrans.algebra.positional.values import names_of
from looptrans.ir.listing import value_text
from tests.algebra import value

PROVED = [
    ("a + b", "b + a"),
    ("exp(a - max(a, b)) * exp(max(a, b) - max(a, b, c))", "exp(a - max(max(c, b), a))"),
    ("max(a + b, a + c)", "a + max(b, c)"),
    ("max(2 * a, 2 * b)", "2 * max(b, a)"),
    ("max(a, b) + min(a, b)", "a + b"),
    ("abs(a) ** 2", "a * a"),
    ("max(a, min(b, c))", "min(max(a, b), max(a, c))"),
    ("exp2(a - b) * exp2(b)", "exp2(a)"),
    ("log(exp(a) + exp(b))", "a + log(1 + exp(b - a))"),
    ("log(exp(log(exp(a) + exp(b))) + exp(c))", "log(exp(a) + exp(log(exp(c) + exp(b))))"),
    ("exp(0.5 * a) * exp(a)", "exp(1.5 * a)"),
    ("sqrt(a * a + b * b) ** 2", "a * a + b * b"),
    ("a if b > c else d", "d if b <= c else a"),
    ("(a if b > c else d) if e > c else d", "a if min(b, e) > c else d"),
    ("a if b == c else c", "a if c == b else c"),
    ("a if a > b else b", "max(a, b)"),
    ("(a - b) * (a + b)", "a ** 2 - b ** 2"),
    ("log2(exp2(a) * 8)", "a + 3"),
    ("b if b == c else c", "c"),
]
REFUTED = [
    ("max(a, min(b, c))", "min(max(a, b), max(b, c))"),
    ("exp2(a - b) * exp(b)", "exp2(a)"),
    ("a if b == c else c", "a if c == b else b"),
    ("sin(a) + b", "sin(a + b)"),
    ("max(a, b) * 2", "max(a, b)"),
    ("(a + b) ** 2", "a ** 2 + b ** 2"),
    ("a if b > c else d", "a if b >= c else d"),
]
UNKNOWN = [
    # The exponential is increasing, which the procedure does not use; no point shows a difference.
    ("max(exp(a), exp(b))", "exp(max(a, b))"),
    ("sin(a) ** 2 + cos(a) ** 2", "1 + 0 * a"),
]


@pytest.mark.parametrize(("left", "right"), PROVED)
def test_proved(left: str, right: str) -> None:
    found = equality(value(left), value(right))
    assert found.answer == "proved", found


@pytest.mark.parametrize(("left", "right"), REFUTED)
def test_refuted_with_numbers_that_show_it(left: str, right: str) -> None:
    a, b = value(left), value(right)
    found = equality(a, b)
    assert found.answer == "refuted" and found.numbers and found.values is not None
    point = {name: mpmath.mpf(text) for name, text in found.numbers}
    with mpmath.workdps(50):
        assert abs(evaluate(a, point) - evaluate(b, point)) > 1e-9


@pytest.mark.parametrize(("left", "right"), UNKNOWN)
def test_unknown_says_what_was_tried(left: str, right: str) -> None:
    found = equality(value(left), value(right))
    assert found.answer == "unknown"
    assert found.tried[0] == "the normal forms differ" and len(found.tried) == 3


def test_what_a_proof_takes_for_granted_is_said() -> None:
    assert equality(value("a / b * b"), value("a")).needs == ("b is not 0",)
    positive = Assumptions(Domain(positive=frozenset({"b"})))
    found = equality(value("a / b * b"), value("a"), positive)
    assert found.needs == () and found.known == ("b is positive",)


def test_a_root_of_a_square_needs_a_sign() -> None:
    assert equality(value("sqrt(a * a)"), value("a")).answer == "refuted"
    known = Assumptions(Domain(nonnegative=frozenset({"a"})))
    assert equality(value("sqrt(a * a)"), value("a"), known).answer == "proved"


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        ("max(m, s)", "m", "proved"),
        ("l * exp(m - max(m, s)) + exp(s - max(m, s))", "l", "proved"),
        ("exp(s)", "0.0 * m", "proved"),
        ("s + m", "m", "refuted"),
        ("exp(s - s)", "1.0 + 0 * m", "unknown"),
        ("s * m", "s", "unknown"),
    ],
)
def test_minus_infinity_is_worked_with_as_floating_point_does(
    left: str, right: str, answer: str
) -> None:
    assumed = Assumptions(minus_infinity=frozenset({"s"}))
    assert equality(value(left), value(right), assumed).answer == answer


def test_nothing_that_differs_is_proved() -> None:
    """Random pairs: whenever `proved` is said, no point may show a difference."""
    rng = random.Random(7)
    leaves = ["a", "b", "c", "1", "2"]

    def draw(depth: int) -> str:
        if depth == 0:
            return rng.choice(leaves)
        x, y = draw(depth - 1), draw(depth - 1)
        return rng.choice(
            [
                f"({x} + {y})",
                f"({x} - {y})",
                f"({x} * {y})",
                f"max({x}, {y})",
                f"min({x}, {y})",
                f"exp(({x} - {y}) / 4)",
                f"({x} if {y} > a else b)",
                f"abs({x})",
            ]
        )

    proved = 0
    for _ in range(120):
        left = draw(2)
        right = left.replace("max", "min", 1) if rng.random() < 0.4 else draw(1 + (len(left) % 2))
        pair = value(left), value(right)
        if equality(*pair).answer != "proved":
            continue
        proved += 1
        names = names_of(*pair)
        for _ in range(20):
            point = {name: mpmath.mpf(rng.uniform(-3, 3)) for name in names}
            with mpmath.workdps(50):
                try:
                    assert not differ(evaluate(pair[0], point), evaluate(pair[1], point)), pair
                except NoNumber:
                    continue
    assert proved >= 10


def test_what_is_multiplied_out_by_exponents_is_what_sympy_expands() -> None:
    """To the last sign and in the same order; where there are roots and floats as well."""
    x, y, z = sympy.symbols("x y _3_", positive=True)
    chance = random.Random(0)

    def made(depth: int) -> Any:
        if depth == 0 or chance.random() < 0.2:
            number = sympy.Rational(chance.randrange(-4, 5), chance.choice((1, 1, 2, 3)))
            return chance.choice((x, y, z, number))
        a, b = made(depth - 1), made(depth - 1)
        return chance.choice((a + b, a * b, a - b, a**2 - b, a / b if b != 0 else a))

    for depth in [3, 4] * 15:
        fraction = made(depth)
        if fraction.has(sympy.nan, sympy.zoo):
            continue
        top, bottom = fraction.as_numer_denom()
        (p, q), (a, b) = multiplied_out(top, bottom), sring((top, bottom))[1]
        assert str(expanded(top)) == str(sympy.expand(top))
        if not bottom.is_Rational:
            assert [str(e.as_expr()) for e in p.cancel(q)] == [
                str(e.as_expr()) for e in a.cancel(b)
            ]
    for odd in (sympy.sqrt(x) * (x + y), 0.5 * (x + y), 2 ** (x + y) * (y + 1), (x + y) * sympy.oo):
        assert expanded(odd) == sympy.expand(odd)


@pytest.mark.parametrize(
    "text",
    [
        "a // b",
        "2.0 * (a // b) + c * (a % b)",
        "(a - c) % (b * b) - (a + c) // b",
        "(c - a // b) / (1.0 + (a % b) ** 2)",
        "(a % c) ** (b // 2.0) * a",
    ],
)
def test_quotients_remainders_and_powers_are_written_back(text: str) -> None:
    """As operators, with what Python itself makes of the text before and afterwards."""
    terms = Terms(Domain())
    written = value_text(value_of(terms.normal(value(text)), terms))
    chance = random.Random(0)
    for _ in range(20):
        names = {name: float(chance.randrange(1, 30)) for name in "abc"}
        assert eval(written, names) == pytest.approx(eval(text, names), rel=1e-12)

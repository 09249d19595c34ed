"""Which blocks of iterations may be appended to a running state, and that the form computes it."""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random

import pytest

from looptrans.algebra.appending.append import Append, append, appends
from looptrans.algebra.appending.append_state import AppendedState
from looptrans.derivation.derive import derive
from looptrans.ir.condition import Condition, Data, Every, Not
from looptrans.ir.listing import access_text
from looptrans.ir.program import Program
from looptrans.ir.value import Binary, Call, Compare, Const, Holds, Real, Select, Unary, Value
from tests.analysis import program, spec


@lru_cache(maxsize=32)
def folded(name: str) -> Program:
    return derive(spec(name), "fold").last


def only(what: Program) -> Append:
    (found,) = appends(what)
    return found


def form(found: Append) -> list[tuple[str, str, bool]]:
    return [(access_text(s.access), s.operator, s.is_moved) for s in found.states]


@pytest.mark.parametrize("name", ["attention_naive", "flash_forward", "attention"])
def test_attention_takes_blocks_in(name: str) -> None:
    found = only(folded(name))
    assert found.decision == "legal" and found.reason == ""
    assert [(op, moved) for _, op, moved in form(found)] == [
        ("max", False),
        ("+", True),
        ("+", True),
    ]
    assert [s.guard is not None for s in found.states] == [False, True, True]
    assert found.states[2].state.over == ("d",)
    assert [law.name for law in found.laws] == [
        "one iteration",
        "moving of the factor",
        "moving of the terms",
        "neutral",
        "first iteration",
    ]
    assert all(certificate.verdict == "legal" for certificate in found.ir())


def test_attention_as_it_is_written_has_three_plain_passes() -> None:
    found = appends(spec("attention_naive"))
    outer, *passes = found
    assert outer.decision == "unknown"
    loops = [p for p in passes if p.loop == "j"]
    assert [form(p) for p in loops] == [
        [("m[i]", "max", False)],
        [("l[i]", "+", False)],
        [("O[i, d]", "+", False)],
    ]


def fold(text: str, *, derived: bool = False) -> Append:
    given = program(text)
    return append(derive(given, "fold").last if derived else given, "j")


def test_several_states_and_conditions_of_their_own() -> None:
    found = fold("""
def f(x: Float[Array, "N"], y: Float[Array, "N"], k: Int[Array, "N"]):
    s = 0.0
    p = 1.0
    m = -inf
    n = inf
    for j in range(0, N):
        s = s + x[j] * y[j]
        if k[j] > 2:
            p = x[j] * p
        if j < 5:
            m = max(y[j], m)
        if x[j] < n:
            n = x[j]
    return s, p, m, n
""")
    assert found.decision == "legal"
    assert form(found) == [
        ("s", "+", False),
        ("p", "*", False),
        ("m", "max", False),
        ("n", "min", False),
    ]
    assert [s.condition is not None for s in found.states] == [False, True, True, False]


def test_a_mask_of_minus_infinity_is_a_condition_on_the_iteration() -> None:
    (loop,) = appends(folded("attention_causal"))
    assert loop.decision == "legal"
    assert str(loop.domain) == "Relation(op='<=', left=Var(name='j'), right=Var(name='i'))"
    assert only(folded("attention")).domain is None


def test_a_guard_written_as_two_choices() -> None:
    found = fold("""
def f(x: Float[Array, "N"]):
    m = -inf
    l = 0.0
    for j in range(0, N):
        n = max(m, x[j])
        c = exp(m - n) if n > -inf else 1.0
        p = exp(x[j] - n) if n > -inf else 0.0
        l = l * c + p
        m = n
    return m, l
""")
    assert found.decision == "legal"
    assert [s.guard is not None for s in found.states] == [False, True]


HEAD = 'def f(x: Float[Array, "N"], a: Float[Array, "N"], A: Float[Array, "L"]):\n'
REFUSED = {
    "h = a[j] * h + x[j]": "multiplied by something new in every iteration",
    "h = 0.5 * h + x[j]": "moving of the factor",
    "h = x[j]": "moving of the terms",
    "h = abs(h) + x[j]\n        A[j] = h": "looks at the state in between",
    "h = h + A[j + 1]\n        A[j] = x[j]": "touch the same cells of A",
    "h = h + x[j]\n        for d in range(0, N):\n            A[j + d] = x[d]": "same cells of A",
    "h = h - h * h + x[j]": "no number times itself",
    "h = h + 1.0 if h < 3.0 else h": "under a condition on the state",
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_is_not_appended_and_why(body: str, reason: str) -> None:
    text = f"    h = 0.0\n    g = 1.0\n    for j in range(0, N):\n        {body}\n"
    found = fold(f"{HEAD}{text}    return h, g, A\n")
    assert found.decision != "legal" and found.states == ()
    assert reason in found.reason


SCANNED = {
    "A[j] = h\n        h = max(h, x[j])": {"h"},
    "h = h + x[j]\n        g = g * h": {"h"},
    "h = 0.5 * h + x[j]\n        g = max(g, h - x[j])": {"h"},
    "h = x[j] if j % 7 == 0 else h + x[j]\n        A[j] = h": {"h"},
    "h = h + x[j]\n        g = max(g, h)\n        A[j] = g": {"g", "h"},
}


@pytest.mark.parametrize(("body", "scanned"), SCANNED.items(), ids=range(len(SCANNED)))
def test_what_is_looked_at_in_between_is_scanned(body: str, scanned: set[str]) -> None:
    text = f"    h = 0.0\n    g = 1.0\n    for j in range(0, N):\n        {body}\n"
    found = fold(f"{HEAD}{text}    return h, g, A\n")
    assert found.decision == "legal" and found.scanned == scanned
    assert found.laws and all(law.answer == "proved" for law in found.laws)


def test_a_state_moved_at_other_times_than_what_it_waits_for() -> None:
    found = fold("""
def f(x: Float[Array, "N"], k: Int[Array, "N"]):
    m = 0.0
    l = 0.0
    for j in range(0, N):
        n = max(m, x[j])
        if k[j] > 0:
            l = l * exp(m - n) + exp(x[j] - n)
        m = n
    return m, l
""")
    assert found.decision == "unknown"
    assert "move at other times" in found.reason


# The form in numbers: blocks against single iterations.


def number(value: Value, names: dict[str, float]) -> float:
    match value:
        case Const(literal):
            return float(literal)
        case Real(name):
            return names[name]
        case Unary("-", operand):
            return -number(operand, names)
        case Binary(op, left, right):
            a, b = number(left, names), number(right, names)
            return {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else math.nan}[op]
        case Call("exp", (argument,)):
            return math.exp(number(argument, names))
        case Call("max" | "min" as word, arguments):
            return (max if word == "max" else min)(number(a, names) for a in arguments)
        case Select(condition, chosen, otherwise):
            return number(chosen if holds(condition, names) else otherwise, names)
    raise AssertionError(value)


def holds(condition: Condition, names: dict[str, float]) -> bool:
    match condition:
        case Data(Compare(op, left, right)):
            a, b = number(left, names), number(right, names)
            return {"<": a < b, ">": a > b, "!=": a != b}[op]
        case Data(Real(name)) | Data(Holds(Data(Real(name)))):
            return bool(names[name])
        case Every(parts):
            return all(holds(part, names) for part in parts)
        case Not(part):
            return not holds(part, names)
    raise AssertionError(condition)


def block(found: Append, old: dict[str, float], given: list[dict[str, float]]) -> dict[str, float]:
    """Append a block as the docstring of the form says."""
    new: dict[str, float] = {}
    for state in sorted(found.states, key=lambda s: s.is_moved):
        name, after = state.state.name, "t" + state.state.name[1:]
        if state.guard is not None and not holds(state.guard, old | new):
            new[after] = old[name]
            continue
        value = old[name]
        if state.factor is not None:
            value *= number(state.factor, old | new)
        new[after] = joined(state, value, [offered(state, old | new | x) for x in given])
    return {"s" + name[1:]: value for name, value in new.items()}


def offered(state: AppendedState, names: dict[str, float]) -> float | None:
    if state.condition is not None and not holds(state.condition, names):
        return None
    return number(state.term, names)


def joined(state: AppendedState, value: float, terms: list[float | None]) -> float:
    for term in terms:
        if term is not None:
            value = {
                "+": value + term,
                "*": value * term,
                "max": max(value, term),
                "min": min(value, term),
            }[state.operator]
    return value


LOGSUMEXP = """
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    m = -inf
    l = 0.0
    o = 0.0
    for j in range(0, N):
        m = max(m, x[j])
    for j in range(0, N):
        l = l + exp(x[j] - m)
    for j in range(0, N):
        o = o + exp(x[j] - m) / l * y[j]
    return o
"""
SMALLEST = """
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    s = 1.0
    m = inf
    for j in range(0, N):
        if y[j] > 0.0:
            n = min(m, x[j])
            s = s * exp(n - m) + exp(n - x[j]) * y[j]
            m = n
    return m, s
"""
NORMALIZED = """
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    w = 1.0
    o = 0.0
    for j in range(0, N):
        v = w + exp(x[j])
        o = (o * w + exp(x[j]) * y[j]) / v
        w = v
    return w, o
"""


def test_a_state_that_is_moved_from_an_infinity_on_must_be_guarded() -> None:
    found = fold(SMALLEST)
    assert found.decision == "unknown"
    assert found.reason.startswith("s would take an infinity from itself")


@pytest.mark.parametrize(
    ("text", "nothing"), [(LOGSUMEXP, -math.inf), (SMALLEST, math.inf), (NORMALIZED, None)]
)
def test_a_block_is_its_iterations_one_after_another(text: str, nothing: float | None) -> None:
    found = fold(text, derived=nothing is not None)
    step = found.recurrence
    assert found.decision == "legal" and step is not None
    random = Random(0)
    for _ in range(20):
        state = {s.name: number(s.initial, {}) for s in step.states}
        given = []
        for _ in range(random.randrange(9)):
            drawn = {x.name: random.choice([1.0, 0.0, random.gauss(0, 3)]) for x in step.inputs}
            if nothing is not None and random.random() < 0.3:
                drawn[first_term(found)] = nothing
            given.append(drawn)
        one, at_once = dict(state), dict(state)
        cut = random.randrange(len(given) + 1)
        for x in given:
            if step.condition is None or condition_of(text, x):
                one = {s.name: number(s.update, one | x) for s in step.states}
        kept = [x for x in given if step.condition is None or condition_of(text, x)]
        cut = min(cut, len(kept))
        for part in (kept[:cut], kept[cut:]):
            at_once = block(found, at_once, part)
        for name, value in one.items():
            assert at_once[name] == pytest.approx(value, rel=1e-12, nan_ok=False)


def first_term(found: Append) -> str:
    term = found.states[0].term
    assert isinstance(term, Real)
    return term.name


def condition_of(text: str, given: dict[str, float]) -> bool:
    """Return the condition of the one listing that has one: its second input is positive."""
    return text is not SMALLEST or given["x2"] > 0.0


@pytest.mark.parametrize("update", ["s - {term}", "s - {term} - y[j]", "y[j] + (s - {term})"])
def test_what_is_taken_off_stays_as_it_is_written(update: str) -> None:
    """The product of log2(e) and log(2), as floats, is none: both kernels of a gate in base 2."""
    term = "1.4426950408889634 * (0.6931471805599453 * exp2(x[j]) * y[j])"
    found = fold(f"""
def f(x: Float[Array, "N"], y: Float[Array, "N"], t: float):
    s = t
    u = 0.0
    for j in range(0, N):
        u += exp2(x[j])
        s = {update.format(term=term)}
    return s, u
""")
    forms = [("u", "+", False), ("s", "+", False)]
    assert (found.decision, form(found)) == ("legal", forms), found.reason

"""What is refused of parallel loops, private names, atomic and reduce blocks, and barriers."""

from __future__ import annotations

import pytest

from looptrans.cli.main import main
from looptrans.frontend import parse
from looptrans.frontend.mistakes import MISTAKES
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.source import Source
from tests.test_bad_input import mistakes_of, underlined

# (text, code, line, underlined, part of the message, part of the remedy)


def inside(*body: str, head: str = "for j in parallel(N):") -> str:
    return "\n".join([head, *(f"    {line}" for line in body)]) + "\n"


def function(*body: str, result: str = "") -> str:
    lines = ["def f(A, x, N):", *(f"    {line}" for line in body)]
    return "\n".join([*lines, *([f"    return {result}"] if result else [])]) + "\n"


REFUSED: dict[str, tuple[str, str, int, str, str, str]] = {
    # Barriers
    "barrier at the top": (
        "x[0] = 0.0\nbarrier()\n" + inside("x[j] = 0.0"),
        *("E023", 2, "barrier()", "stands outside any parallel loop", "leave it out"),
    ),
    "barrier in a sequential nest": (
        inside("x[j] = 0.0", "barrier()", head="for j in range(N):"),
        *("E023", 3, "barrier()", "stands outside any parallel loop", "in parallel(…)"),
    ),
    "barrier in a guard": (
        inside("if j > 0:", "    barrier()", "x[j] = 0.0"),
        *("E023", 3, "barrier()", "in a guard, not directly", "between two guards"),
    ),
    "barrier in a loop": (
        inside("for d in range(3):", "    x[j] = 0.0", "    barrier()"),
        *("E023", 4, "barrier()", "in the loop d, not directly", "before or after the loop d"),
    ),
    "barrier in an atomic block": (
        inside("with atomic():", "    x[0] += 1.0", "    barrier()"),
        *("E023", 4, "barrier()", "in an atomic block, not directly", "end the block"),
    ),
    "barrier in a reduce block": (
        inside("with reduce('+'):", "    x[0] += 1.0", "    barrier()"),
        *("E023", 4, "barrier()", "in a reduce block, not directly", "end the block"),
    ),
    "barrier of something": (
        inside("barrier(j)", "x[j] = 0.0"),
        *("E006", 2, "barrier(j)", "not understood", "write barrier()"),
    ),
    "barrier named": (
        inside("barrier", "x[j] = 0.0"),
        *("E006", 2, "barrier", "stands alone", "write barrier()"),
    ),
    "barrier as a value": (
        inside("x[j] = barrier()"),
        *("E008", 2, "barrier", "not a function", "a line of its own"),
    ),
    "barrier that is an array": (
        inside("barrier[j] = 0.0", "barrier()"),
        *("E022", 3, "barrier", "also a name of the listing", "barrier_"),
    ),
    # Atomic blocks
    "atomic at the top": (
        "with atomic(): x[0] = 0.0\n" + inside("x[j] = 0.0"),
        *("E023", 1, "with atomic()", "outside any parallel loop", "leave it out"),
    ),
    "atomic in a sequential nest": (
        inside("with atomic(): x[0] += 1.0", head="for j in range(N):"),
        *("E023", 2, "with atomic()", "an atomic block stands outside", "in parallel(…)"),
    ),
    "atomic in atomic": (
        inside("with atomic():", "    if j > 0:", "        with atomic(): x[0] += 1.0"),
        *("E023", 4, "with atomic()", "inside another one", "leave the inner with out"),
    ),
    "atomic of something": (
        inside("with atomic(j): x[0] += 1.0"),
        *("E006", 2, "atomic(j)", "not understood", "with atomic(turn=j):"),
    ),
    "atomic not called": (
        inside("with atomic: x[0] += 1.0"),
        *("E006", 2, "with atomic", "not called", "write with atomic():"),
    ),
    "atomic with as": (
        inside("with atomic() as a: x[0] += 1.0"),
        *("E006", 2, "with atomic() as a", "with as", "with atomic(): alone"),
    ),
    "two in one with": (
        inside("with atomic(), reduce('+'): x[0] += 1.0"),
        *("E006", 2, "with atomic(), reduce('+')", "several parts", "another with inside"),
    ),
    "atomic alone": (
        inside("atomic()", "x[0] += 1.0"),
        *("E006", 2, "atomic()", "stands alone", "write with atomic():"),
    ),
    "atomic that is a scalar": (
        inside("atomic = 1.0", "with atomic(): x[0] += atomic"),
        *("E022", 3, "atomic", "also a name of the listing", "atomic_"),
    ),
    "another with": (
        inside("with open(x) as f: x[0] = 0.0"),
        *("E006", 2, "with open(x) as f", "'open(x)'", "take the statements out"),
    ),
    # Turns
    "turn of nothing": (
        inside("with atomic(turn=k): x[0] += 1.0"),
        *("E023", 2, "k", "there is no loop k", "name the variable of the parallel loop"),
    ),
    "turn of no name": (
        inside("with atomic(turn=j + 1): x[0] += 1.0"),
        *("E006", 2, "atomic(turn=j + 1)", "not understood", "with atomic(turn=j):"),
    ),
    "turn of a sequential loop": (
        inside("for d in range(3):", "    with atomic(turn=d): x[0] += 1.0"),
        *("E023", 3, "d", "the loop d is not parallel", "for d in parallel(…)"),
    ),
    "turn of another loop": (
        inside("for d in parallel(3):", "    with atomic(turn=j): x[0] += 1.0"),
        *("E023", 3, "j", "not stand directly in the body of the loop j", "with the loop d inside"),
    ),
    "turn in a guard": (
        inside("if j > 0:", "    with atomic(turn=j): x[0] += 1.0"),
        *("E023", 3, "j", "not stand directly in the body of the loop j", "the guard inside"),
    ),
    # Reduce blocks
    "reduce in a sequential nest": (
        inside("with reduce('+'): x[0] += 1.0", head="for j in range(N):"),
        *("E023", 2, "with reduce('+')", "a reduce block stands outside", "in parallel(…)"),
    ),
    "reduce by another operator": (
        inside("with reduce('-'): x[0] -= 1.0"),
        *("E024", 2, "'-'", "'-' is no operator", 'use "+", "*", "max" or "min"'),
    ),
    "reduce by nothing": (
        inside("with reduce(): x[0] += 1.0"),
        *("E006", 2, "reduce()", "not understood", 'use "+", "*", "max" or "min"'),
    ),
    "reduce by a name": (
        inside("with reduce(op='+'): x[0] += 1.0"),
        *("E006", 2, "reduce(op='+')", "not understood", 'use "+"'),
    ),
    "reduce of a plain assignment": (
        inside("with reduce('+'): x[0] = y[j]"),
        *("E024", 2, "x[0] = y[j]", 'no update with "+"', "write it as cell += x"),
    ),
    "reduce with another operator than it says": (
        inside("with reduce('*'): x[0] += y[j]"),
        *("E024", 2, "x[0] += y[j]", 'no update with "*"', "write it as cell *= x"),
    ),
    "reduce of a difference": (
        inside("with reduce('+'): x[0] -= y[j]"),
        *("E024", 2, "x[0] -= y[j]", 'no update with "+"', "write cell += -(x)"),
    ),
    "reduce with the cell last": (
        inside("with reduce('max'): x[0] = max(y[j], x[0])"),
        *("E024", 2, "x[0] = max(y[j], x[0])", "no update", "cell = max(cell, x)"),
    ),
    "reduce of another cell": (
        inside("with reduce('+'): x[0] = x[1] + y[j]"),
        *("E024", 2, "x[0] = x[1] + y[j]", "no update", "cell += x"),
    ),
    "reduce of two": (
        inside(
            "with reduce('+'): a, b = a + 1.0, b + 1.0", head="a = b = 0.0\nfor j in parallel(N):"
        ),
        *("E024", 3, "a, b = a + 1.0, b + 1.0", "no update", "cell += x"),
    ),
    "reduce that reads its cell": (
        inside("with reduce('+'): x[0] += x[0] * y[j]"),
        *("E024", 2, "x[0] += x[0] * y[j]", "'x' is updated in the reduce block", "atomic"),
    ),
    "reduce that reads another cell of the array": (
        inside("with reduce('+'): x[0] += x[j + 1]"),
        *("E024", 2, "x[0] += x[j + 1]", "is read there as well", "after a barrier"),
    ),
    "reduce that tests its cell": (
        inside("with reduce('+'):", "    if x[0] < 1.0: x[0] += y[j]"),
        *("E024", 3, "if x[0] < 1.0: x[0] += y[j]", "is read there as well", "after a barrier"),
    ),
    "reduce around a parallel loop": (
        inside("with reduce('+'):", "    for d in parallel(3): x[0] += y[d]"),
        *("E024", 3, "for d in parallel(3): x[0] += y[d]", "a parallel loop stands", "inside the"),
    ),
    "atomic in reduce": (
        inside("with reduce('+'):", "    with atomic(): x[0] += y[j]"),
        *("E024", 3, "with atomic(): x[0] += y[j]", "an atomic block stands", "inner with out"),
    ),
    "reduce in reduce": (
        inside("with reduce('+'):", "    with reduce('+'): x[0] += y[j]"),
        *("E024", 3, "with reduce('+'): x[0] += y[j]", "a reduce block stands", "inner with out"),
    ),
    "reduce of a private cell": (
        inside("private: s", "s = 0.0", "with reduce('+'): s += y[j]", "x[j] = s"),
        *("E024", 4, "s += y[j]", "'s' is updated in a reduce block, and is private", "leave s"),
    ),
    # Private names
    "private at the end": (
        inside("s = x[j]", "x[j] = s", "private: s"),
        *("E025", 4, "private: s", "not the first line", "right under the head"),
    ),
    "private at the top": (
        function("private: s", *inside("s = x[j]", "x[j] = s").splitlines()),
        *("E025", 2, "private: s", "not the first line", "right under the head"),
    ),
    "private in a guard": (
        inside("if j > 0:", "    private: s", "    s = x[j]", "    x[j] = s"),
        *("E025", 3, "private: s", "not the first line", "right under the head"),
    ),
    "private of an unknown name": (
        inside("private: (s, z)", "s = x[j]", "x[j] = s"),
        *("E025", 2, "z", "'z' is no array or scalar", "check how it is written"),
    ),
    "private of nothing": (
        inside("private: ()", "x[j] = 0.0"),
        *("E025", 2, "()", "names nothing", "private: (x, y)"),
    ),
    "private with a value": (
        inside("private: s = 1.0", "s = x[j]", "x[j] = s"),
        *("E025", 2, "private: s = 1.0", "gives a value", "on a line of its own"),
    ),
    "private of an element": (
        inside("private: x[j]", "x[j] = 0.0"),
        *("E025", 2, "x[j]", "is no name", "private: (x, y)"),
    ),
    "private of an argument": (
        function(*inside("private: x", "x[j] = 0.0").splitlines()),
        *("E025", 3, "x", "'x' comes from outside", "store it to x in the loop"),
    ),
    "private of a free array": (
        inside("private: x", "x[j] = 0.0"),
        *("E025", 2, "x", "'x' comes from outside", "a local name"),
    ),
    "private of a size": (
        inside("private: N", "x[j] = 0.0"),
        *("E025", 2, "N", "'N' is a parameter", "leave N out"),
    ),
    "private of a loop variable": (
        inside("private: j", "x[j] = 0.0"),
        *("E025", 2, "j", "'j' is a loop variable", "leave j out"),
    ),
    "private twice": (
        inside("private: (s, t, s)", "s, t = x[j], 1.0", "x[j] = s * t"),
        *("E025", 2, "s", "'s' is named twice", "once"),
    ),
    "private and returned": (
        function("s = zeros(3)", *inside("private: s", "s[0] = x[j]").splitlines(), result="s"),
        *("E025", 4, "s", "is private, and is returned", "return another array"),
    ),
    "private set before": (
        function("s = 0.0", *inside("private: s", "s = x[j]", "x[j] = s").splitlines()),
        *("E025", 2, "s = 0.0", "used outside it", "another name"),
    ),
    "private read after": (
        function(*inside("private: s", "s = x[j]", "x[j] = s").splitlines(), "x[0] = s"),
        *("E025", 6, "x[0] = s", "of the loop j on line 3", "leave s out"),
    ),
    "private in one of two loops": (
        inside("private: s", "s = x[j]")
        + inside("s = x[j]", "x[j] = s", head="for k in range(N):"),
        *("E014", 5, "j", "outside its loop", "move the use into the loop"),
    ),
    "private in one of two loops, used in the other": (
        inside("private: s", "s = x[j]")
        + inside("s = x[k]", "x[k] = s", head="for k in range(N):"),
        *("E025", 5, "s = x[k]", "of the loop j on line 2", "another name"),
    ),
    "private in a bound of its own loop": (
        inside("k = 3", "for d in range(k):", "    private: k", "    k = 1", "    x[d] = k"),
        *("E025", 2, "k = 3", "of the loop d on line 4", "another name"),
    ),
    "several without parentheses": (
        inside("private: s, t", "s, t = x[j], 1.0"),
        *("E002", 2, ",", "not valid Python", "private: (x, y)"),
    ),
    # Loop heads
    "parallel of nothing": (
        "for j in parallel(): x[0] = 0.0\n",
        *("E009", 1, "parallel()", "parallel is given 0 numbers", "parallel(start, stop)"),
    ),
    "parallel with options": (
        "for j in parallel(N, threads=4): x[j] = 0.0\n",
        *("E007", 1, "parallel(N, threads=4)", "by name", "by position"),
    ),
    "parallel with a varying step": (
        "for j in parallel(0, N, -P): x[j] = 0.0\n",
        *("E010", 1, "-P", "no constant", "constant step"),
    ),
    "parallel, an array too": (
        inside("parallel[j] = 0.0"),
        *("E022", 1, "parallel", "a name of the listing", "parallel_"),
    ),
    "prange, and an array parallel": (
        inside("parallel[j] = 0.0", head="for j in prange(N):"),
        *("E022", 1, "prange", "a name of the listing", "parallel_"),
    ),
    "parallel in a sum": (
        inside("x[j] = sum(y[e] for e in parallel(3))"),
        *("E009", 2, "parallel(3)", "runs over", "range"),
    ),
    "parallel range": (
        "for j in parallel(range(N)): x[j] = 0.0\n",
        *("E012", 1, "range(N)", "not an affine", "loop variables and sizes"),
    ),
    "parallel as a value": (
        inside("x[j] = parallel(3)"),
        *("E008", 2, "parallel", "not a function", "run a loop over it"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake(case: str) -> None:
    text, code, line, part, message, remedy = REFUSED[case]
    (mistake,) = mistakes_of(text)
    assert (mistake.code, mistake.span and mistake.span.line) == (code, line)
    assert underlined(mistake, text) == part
    assert message in mistake.message
    assert remedy in mistake.remedy
    assert mistake.why or code in ("E002", "E006", "E007")
    assert type(mistake) in MISTAKES


def test_how_a_mistake_reads() -> None:
    text = inside("if j > 0:", "    barrier()", "x[j] = 0.0")
    with pytest.raises(ListingError) as caught:
        parse(Source("t.py", text))
    assert caught.value.render() == (
        "error[E023]: a barrier stands in a guard, not directly in the body of the parallel loop "
        "j\n"
        "  t.py:3:9 | barrier()\n"
        "             ^^^^^^^^^\n"
        "  all iterations of j wait at it, so each must come to it exactly once\n"
        "  help: put it into the body of j, between two guards of the same condition"
    )


def test_all_mistakes_are_found() -> None:
    text = inside(
        "private: (x, z)",
        "with atomic(turn=k):",
        "    with atomic(): x[j*j] = 0.0",
        "with reduce('-'): x[0] = y[j]",
        "private: s",
        "barrier(1)",
    )
    found = [(m.code, m.span.line if m.span else 0) for m in mistakes_of(text)]
    assert found == [
        *[("E025", 2), ("E025", 2), ("E023", 3), ("E023", 4), ("E012", 4), ("E024", 5)],
        *[("E025", 6), ("E006", 7)],
    ]


@pytest.mark.parametrize("code", ["E023", "E024", "E025", "E026"])
def test_a_code_is_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    assert capsys.readouterr().out.startswith(f"{code}: ")

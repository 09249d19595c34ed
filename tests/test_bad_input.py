"""What is outside the listing language: the code of the mistake, and what is underlined."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from looptrans.frontend import load, parse
from looptrans.frontend.mistakes import MISTAKES
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.source import Source


def mistakes_of(text: str, function: str | None = None) -> tuple[Mistake, ...]:
    with pytest.raises(ListingError) as caught:
        parse(Source("bad.py", text), function)
    return caught.value.mistakes


def underlined(mistake: Mistake, text: str) -> str:
    """The part of the text that the carets stand under."""
    lines = mistake.render(Source("bad.py", text)).splitlines()
    if mistake.span is None:
        return ""
    excerpt, carets = lines[1], lines[2]
    assert set(carets) <= {" ", "^"}
    return excerpt[carets.index("^") : carets.rindex("^") + 1]


def in_loop(*body: str, arguments: str = "A, B, x, y, N") -> str:
    lines = [f"def f({arguments}):", "    for i in range(N):", "        for j in range(N):"]
    return "\n".join(lines + [f"            {line}" for line in body]) + "\n"


def at_top(*body: str, arguments: str = "A, x, N") -> str:
    lines = [f"def f({arguments}):", *(f"    {line}" for line in body)]
    return "\n".join([*lines, "    for i in range(N):", "        x[i] = 1.0", ""])


# name: (text, [(code, line, underlined)])
CASES: dict[str, tuple[str, list[tuple[str, int, str]]]] = {
    # Values
    "product of loop variables": (in_loop("x[i*j] = 0.0"), [("E012", 4, "i*j")]),
    "true division in a subscript": (in_loop("x[i / 2] = 0.0"), [("E012", 4, "i / 2")]),
    "float subscript": (in_loop("x[1.5] = 0.0"), [("E012", 4, "1.5")]),
    "division by what varies": (in_loop("x[i // j] = 0.0"), [("E012", 4, "i // j")]),
    "modulo zero": (in_loop("x[i % 0] = 0.0"), [("E012", 4, "i % 0")]),
    "modulo zero in a value": (
        in_loop("x[i] = x[i] if i % 0 == 0 else 0.0"),
        [("E012", 4, "i % 0")],
    ),
    "call in a subscript": (in_loop("x[exp(i)] = 0.0"), [("E012", 4, "exp(i)")]),
    "real in a subscript": (
        in_loop("x[i + a] = 0.0", arguments="x, N, a: float"),
        [("E012", 4, "a")],
    ),
    "written index array": (
        in_loop("p[i] = j", "x[p[i]] = 0.0", arguments="x, p, N"),
        [("E013", 5, "p[i]")],
    ),
    "float index array": (
        in_loop("x[p[i]] = 0.0", arguments='x, p: Float[Array, "N"], N'),
        [("E013", 4, "p[i]")],
    ),
    "data in a subscript": (
        in_loop("k = int(x[i])", "y[k] = 0.0", arguments='x: Float[Array, "N"], y, N'),
        [("E013", 5, "k")],
    ),
    "counter in a subscript": (
        "def f(x, N):\n    k = 0\n    for i in range(N):\n        x[k] = 0.0\n        k = k + 2\n",
        [("E013", 4, "k")],
    ),
    "whole array in a subscript": (
        in_loop("x[A] = A[i, j]"),
        [("E015", 4, "A")],
    ),
    "negative subscript": (in_loop("x[-1] = 0.0"), [("E016", 4, "-1")]),
    "slice": (in_loop("y[0:3] = 0.0"), [("E007", 4, "0:3")]),
    "unknown function": (in_loop("x[i] = frobnicate(y[j])"), [("E008", 4, "frobnicate")]),
    "import in an expression": (
        in_loop("x[i] = __import__('os').system('touch /tmp/looptrans-was-here')"),
        [("E008", 4, "__import__('os').system")],
    ),
    "method": (in_loop("x[i] = y.sum()"), [("E008", 4, "y.sum")]),
    "numpy dot": (in_loop("x[i] = np.dot(A[i], B[j])"), [("E008", 4, "np.dot")]),
    "walrus": (in_loop("x[i] = (s := 2.0)"), [("E007", 4, "s := 2.0")]),
    "f-string": (in_loop('x[i] = f"{i}"'), [("E007", 4, 'f"{i}"')]),
    "string": (in_loop("x[i] = 'a'"), [("E007", 4, "'a'")]),
    "none": (in_loop("x[i] = None"), [("E007", 4, "None")]),
    "complex": (in_loop("x[i] = 1j"), [("E007", 4, "1j")]),
    "nan": (in_loop("x[i] = nan"), [("E007", 4, "nan")]),
    "lambda in place": (in_loop("x[i] = (lambda v: v)(2.0)"), [("E008", 4, "lambda v: v")]),
    "list": (in_loop("x[i] = [1, 2]"), [("E007", 4, "[1, 2]")]),
    "comprehension": (
        in_loop("x[i] = [y[k] for k in range(N)]"),
        [("E007", 4, "[y[k] for k in range(N)]")],
    ),
    "bit operator": (in_loop("x[i] = y[i] & y[j]"), [("E007", 4, "y[i] & y[j]")]),
    "is": (in_loop("x[i] = 1.0 if y is x else 2.0"), [("E007", 4, "y is x")]),
    "star argument": (in_loop("x[i] = max(*y)"), [("E007", 4, "max(*y)")]),
    "keyword argument": (in_loop("x[i] = exp(x=y[i])"), [("E007", 4, "exp(x=y[i])")]),
    "too few arguments": (in_loop("x[i] = where(i > j, 1.0)"), [("E007", 4, "where(i > j, 1.0)")]),
    "and of numbers": (in_loop("x[i] = y[i] and y[j]"), [("E007", 4, "x[i] = y[i] and y[j]")]),
    "huge integer": (in_loop(f"x[i] = {10**30}"), [("E007", 4, str(10**30))]),
    "transposed": (in_loop("x[i] = A.T[i, j]"), [("E007", 4, "A.T")]),
    # Names
    "never set": (in_loop("x[i] = s"), [("E014", 4, "s")]),
    "never set, many times": (in_loop("x[i] = s", "y[i] = s + s"), [("E014", 4, "s")]),
    "set too late": (in_loop("x[i] = s", "s = y[i]"), [("E014", 4, "s")]),
    "never an array": (in_loop("x[i] = Z[i]"), [("E014", 4, "Z")]),
    "stored into nothing": (in_loop("Z[i] = 1.0"), [("E014", 4, "Z[i]")]),
    "after its loop": (
        "def f(x, N):\n    for i in range(N):\n        x[i] = 0.0\n    x[i] = 1.0\n",
        [("E014", 4, "i")],
    ),
    "augmented before set": (in_loop("s += x[i]"), [("E014", 4, "s")]),
    "loop variable assigned": (in_loop("i = 3"), [("E011", 4, "i")]),
    "loop variable augmented": (in_loop("i += 1"), [("E011", 4, "i")]),
    "parameter assigned": (
        "def f(x, N):\n    for i in range(N):\n        x[i] = 0.0\n        N = 2\n",
        [("E013", 2, "N")],
    ),
    "loop inside its own": (
        "for i in range(N):\n    for i in range(N):\n        A[i] = 0.0\n",
        [("E011", 2, "i")],
    ),
    "sum over a loop's variable": (
        in_loop("x[i] = sum(y[j] for j in range(N))"),
        [("E011", 4, "j")],
    ),
    "argument as loop variable": (
        "def f(x, i, N):\n    for i in range(N):\n        x[i] = 0.0\n",
        [("E011", 2, "i")],
    ),
    "function name taken": (in_loop("max = 3.0", "x[i] = max(y[i], y[j])"), [("E022", 5, "max")]),
    "function name taken by an argument": (
        in_loop("x[i] = sum(y[k] for k in range(N))", arguments="x, y, sum: float, N"),
        [("E022", 4, "sum")],
    ),
    "function name taken, and needed": (
        in_loop("max = y[i]", "if x[j] > max: max = x[j]"),
        [("E022", 4, "max")],
    ),
    "number subscripted": (in_loop("x[i] = i[j]"), [("E015", 4, "i")]),
    # Ranks
    "too many subscripts": (
        in_loop("x[i] = A[i, j, 0]", arguments='x, A: Float[Array, "N N"], N'),
        [("E015", 4, "A[i, j, 0]")],
    ),
    "row as a number": (in_loop("if A[i] > 0.0: x[i] = A[i, j]"), [("E015", 4, "A[i]")]),
    "number as a row": (
        in_loop("x[i] = x[j] @ y", arguments='x: Float[Array, "N"], y: Float[Array, "N"], N'),
        [("E015", 4, "x[j]")],
    ),
    "row into an element": (
        in_loop("A[i, j] = B[i]", arguments='A: Float[Array, "N N"], B: Float[Array, "N N"], N'),
        [("E015", 4, "A[i, j]")],
    ),
    "row into an element of what is made here": (
        "def f(A: Float[Array, 'N N'], N):\n    y = zeros((N, N))\n    for i in range(N):\n"
        "        for j in range(N):\n            y[i, j] = 2.0 * A[j]\n    return y\n",
        [("E015", 5, "y[i, j]")],
    ),
    "number and row": (
        in_loop("s = A[i]", "t = s @ s", "s = 2.0", "x[j] = t"),
        [("E015", 6, "s")],
    ),
    "matrix operator": (
        in_loop("C = A + A", arguments='A: Float[Array, "N N"], N'),
        [("E015", 4, "A + A")],
    ),
    "argument rebound": (in_loop("y = x", "x[i] = y[j]"), [("E006", 4, "y")]),
    "shared row": (
        in_loop("q = A[i]", "A[i, j] = 2.0", "x[i] = q @ q"),
        [("E019", 6, "x[i] = q @ q")],
    ),
    "one array under two names": (at_top("p = q = zeros(N)"), [("E019", 2, "p = q = zeros(N)")]),
    # Statements
    "while": (in_loop("while True: x[i] = 0.0"), [("E006", 4, "while True")]),
    "break": (in_loop("x[i] = 0.0", "break"), [("E006", 5, "break")]),
    "continue": (in_loop("continue", "x[i] = 0.0"), [("E006", 4, "continue")]),
    "try": (in_loop("try:", "    x[i] = 0.0", "finally:", "    pass"), [("E006", 4, "try")]),
    "match": (in_loop("match i:", "    case 0:", "        x[i] = 0.0"), [("E006", 4, "match")]),
    "with": (in_loop("with x: y[i] = 0.0"), [("E006", 4, "with x")]),
    "global": (at_top("global x"), [("E006", 2, "global x")]),
    "import": (at_top("import os"), [("E006", 2, "import os")]),
    "delete": (at_top("del A"), [("E006", 2, "del A")]),
    "class": (at_top("class C: pass"), [("E006", 2, "class")]),
    "raise": (in_loop("raise ValueError"), [("E006", 4, "raise ValueError")]),
    "call alone": (in_loop("print(x[i])"), [("E006", 4, "print(x[i])")]),
    "yield": (in_loop("yield x[i]"), [("E006", 4, "yield x[i]")]),
    "bit assignment": (in_loop("x[i] &= 1"), [("E006", 4, "x[i] &= 1")]),
    "loop else": (
        "for i in range(N):\n    A[i] = 0.0\nelse:\n    A[0] = 1.0\n",
        [("E006", 1, "for i in range(N)")],
    ),
    "async for": (
        "async def f(x, N):\n    async for i in range(N):\n        x[i] = 0.0\n",
        [("E006", 1, "async def")],
    ),
    "unpacking": (in_loop("a, b = x"), [("E007", 4, "x")]),
    "subscript set beside": (in_loop("k, x[k] = i, 1.0"), [("E006", 4, "k, x[k] = i, 1.0")]),
    "starred target": (in_loop("*a, b = x, y"), [("E006", 4, "*a")]),
    # Loops
    "loop over a list": ("for i in [1, 2, 3]:\n    A[i] = 0.0\n", [("E009", 1, "[1, 2, 3]")]),
    "loop over an array": ("for v in A:\n    B[0] = v\n", [("E009", 1, "A")]),
    "enumerate": ("for i, v in enumerate(A):\n    B[i] = v\n", [("E009", 1, "i, v")]),
    "range of nothing": ("for i in range():\n    A[i] = 0.0\n", [("E009", 1, "range()")]),
    "step zero": ("for i in range(0, N, 0):\n    A[i] = 0.0\n", [("E010", 1, "0")]),
    "step downwards by a size": (
        "for i in range(N, 0, -P):\n    A[i] = 0.0\n",
        [("E010", 1, "-P")],
    ),
    "real bound": ("for i in range(N / 2):\n    A[i] = 0.0\n", [("E012", 1, "N / 2")]),
    # Contracts, annotations, the return
    "contract in a loop": (in_loop("assert i < N"), [("E020", 4, "assert i < N")]),
    "contract on data": (at_top("assert x[0] > 0.5"), [("E020", 2, "x[0] > 0.5")]),
    "all of nothing": (at_top("assert all(x)"), [("E020", 2, "all(x)")]),
    "one name for two arguments": (at_top(arguments="x, y, x"), [("E002", 1, "x")]),
    "open shape": (
        at_top(arguments='A: Float[Array, "*B N"], x, N'),
        [("E018", 1, 'Float[Array, "*B N"]')],
    ),
    "bad extent": (
        at_top(arguments='A: Float[Array, "N ("], x, N'),
        [("E018", 1, 'Float[Array, "N ("]')],
    ),
    "bad range": (
        at_top(arguments='A: Int[Array, "N", "4"], x, N'),
        [("E018", 1, 'Int[Array, "N", "4"]')],
    ),
    "range without an integer": (
        at_top(arguments='A: Int[Array, "N", "5:3"], x, N'),
        [("E018", 1, 'Int[Array, "N", "5:3"]')],
    ),
    "shape within a shape": (
        at_top(arguments='A: Float[Float[Array, "N"], "M"], x, N'),
        [("E018", 1, 'Float[Float[Array, "N"], "M"]')],
    ),
    "element type misspelt": (
        at_top(arguments='A: Flaot[Array, "N"], x, N'),
        [("E018", 1, "Flaot")],
    ),
    "shape that is no string": (
        at_top(arguments="A: Float[Array, N], x, N"),
        [("E018", 1, "Float[Array, N]")],
    ),
    "a third string": (
        at_top(arguments='A: Int[Array, "N", "0:N", "0:4"], x, N'),
        [("E018", 1, 'Int[Array, "N", "0:N", "0:4"]')],
    ),
    "negative extent": (
        at_top(arguments='A: Float[Array, "N -3"], x, N'),
        [("E018", 1, 'Float[Array, "N -3"]')],
    ),
    "array annotated as a number": (at_top(arguments="x: float, N"), [("E015", 1, "float")]),
    "size assigned": (
        at_top("M = 3", arguments='A: Float[Array, "M"], x, N'),
        [("E018", 1, 'Float[Array, "M"]'), ("E011", 2, "M")],
    ),
    "star arguments": (at_top(arguments="*x, N=3"), [("E006", 1, "x")]),
    "early return": (
        "def f(x, N):\n    for i in range(N):\n        return x\n",
        [("E021", 3, "return x")],
    ),
    "returned expression": (
        "def f(x, N):\n    for i in range(N):\n        x[i] = 0.0\n    return x + 1, q\n",
        [("E021", 4, "x + 1"), ("E021", 4, "q")],
    ),
    "after the return": (
        "def f(x, N):\n    return x\n    for i in range(N):\n        x[i] = 0.0\n",
        [("E021", 2, "return x")],
    ),
    "return outside": ("for i in range(N):\n    A[i] = 0.0\nreturn A\n", [("E021", 3, "return A")]),
    # Labels and creations
    "duplicate label": (
        in_loop("x[i] = 0.0  # S1: one", "y[i] = 0.0  # S1: two"),
        [("E017", 5, "y[i] = 0.0")],
    ),
    "bad dtype": (at_top("C = zeros(N, dtype=object)"), [("E007", 2, "object")]),
    "shape and extent": (at_top("C = zeros((N, N), N)"), [("E007", 2, "N")]),
    "array in an expression": (at_top("C = 2 * zeros(N)"), [("E007", 2, "zeros(N)")]),
    # Helpers
    "recursive helper": (
        "def g(v):\n    return g(v)\n" + in_loop("x[i] = g(y[i])"),
        [("E003", 2, "g(v)")],
    ),
    "helper that loops": (
        "def g(v):\n    v = v + 1\n    print(v)\n    return v\n" + in_loop("x[i] = g(y[i])"),
        [("E007", 1, "def")],
    ),
    "helper's arguments": (
        "def g(v):\n    return v\n" + in_loop("x[i] = g(y[i], 2.0)"),
        [("E007", 6, "g(y[i], 2.0)")],
    ),
    "helper's names": (
        "def g(v):\n    return v * s\n" + in_loop("s = 2.0", "x[i] = g(y[i])"),
        [("E007", 2, "s")],
    ),
    "helper that grows": (
        "def g(v):\n    a = v + v\n"
        + "".join("    a = a + a\n" for _ in range(40))
        + "    return a\n"
        + in_loop("x[i] = g(y[i])"),
        [("E003", 13, "a + a")],
    ),
    # The text
    "syntax": ("for i in range(N)\n    A[i] = 0.0\n", [("E002", 1, "\n")]),
    "tabs and spaces": ("if a:\n        x = 1\n\ty = 2\n", [("E002", 3, "\n")]),
    "return missing bracket": ("x = (1,\n", [("E002", 1, "(")]),
    "several mistakes": (
        in_loop("x[i*j] = 0.0", "while True: pass", "y[i] = foo(x[i])", "x[i] = s"),
        [("E012", 4, "i*j"), ("E006", 5, "while True"), ("E008", 6, "foo"), ("E014", 7, "s")],
    ),
    "both sides": (in_loop("x[i*j] = foo(i)"), [("E012", 4, "i*j"), ("E008", 4, "foo")]),
    "bad loop, bad body": (
        "for i in A:\n    B[i] = undefined(i)\n",
        [("E009", 1, "A"), ("E008", 2, "undefined")],
    ),
    "bad guard, bad body": (
        in_loop("if foo(i):", "    x[i] = bar(i)", "else:", "    x[i] = s"),
        [("E008", 4, "foo"), ("E008", 5, "bar"), ("E014", 7, "s")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_named_and_underlined(case: str) -> None:
    text, expected = CASES[case]
    found = mistakes_of(text)
    places = [(m.code, m.span.line if m.span else 0) for m in found]
    assert places == [(code, line) for code, line, _ in expected]
    for mistake, (_, _, part) in zip(found, expected, strict=True):
        if part != "\n":
            assert underlined(mistake, text) == part


@pytest.mark.parametrize("case", CASES)
def test_every_mistake_says_what_to_do(case: str) -> None:
    text, _ = CASES[case]
    for mistake in mistakes_of(text):
        assert mistake.remedy
        assert type(mistake) in MISTAKES
        assert "Traceback" not in mistake.render(Source("bad.py", text))


def test_nothing_is_executed(tmp_path: Path) -> None:
    made = tmp_path / "made"
    text = in_loop(f"x[i] = __import__('os').system('touch {made}')")
    mistakes_of(text)
    assert not made.exists()


def test_codes_are_unique() -> None:
    assert len({kind.code for kind in MISTAKES}) == len(MISTAKES)
    assert all(kind.__doc__ and kind.title for kind in MISTAKES)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "x = 1\n", "import os\n"])
def test_a_text_without_a_nest(text: str) -> None:
    assert [m.code for m in mistakes_of(text)] == ["E004"]


TWO = (
    "def f(A):\n    for i in range(N): A[i] = 0.0\n\ndef g(A):\n    for i in range(N): A[i] = 1.0\n"
)


def test_which_function() -> None:
    assert [m.code for m in mistakes_of(TWO)] == ["E005"]
    (mistake,) = mistakes_of(TWO, "h")
    assert mistake.code == "E005"
    assert "f, g" in mistake.why
    assert parse(Source("two.py", TWO), "g").name == "g"


def test_a_product_with_spaces_is_no_open_shape() -> None:
    (mistake,) = mistakes_of(at_top(arguments='A: Float[Array, "2 * N + 1"], x, N'))
    assert mistake.message == "'*' is no extent"
    assert "without spaces" in mistake.why


def test_carets_under_wide_characters_and_tabs() -> None:
    text = "def f(x):\n\tfor i in range(N):\n\t\tx[i] = 'é漢' + x[i*i]\n"
    mistakes = mistakes_of(text)
    rendered = mistakes[0].render(Source("bad.py", text)).splitlines()
    assert rendered[1].endswith("x[i] = 'é漢' + x[i*i]")
    # é takes one column, 漢 two.
    assert rendered[2].index("^") == rendered[1].index("'é漢'")
    assert rendered[2].count("^") == 5


def test_a_long_line_is_cut_around_the_mistake() -> None:
    text = "for i in range(N):\n    A[i] = " + "1.0 + " * 60 + "foo(i)" + " + 1.0" * 20 + "\n"
    (mistake,) = mistakes_of(text)
    assert underlined(mistake, text) == "foo"
    assert len(mistake.render(Source("bad.py", text)).splitlines()[1]) < 200


def files(folder: Path) -> dict[str, Path]:
    (folder / "binary.py").write_bytes(bytes(range(256)))
    (folder / "latin.py").write_bytes("# größe\n".encode("latin-1"))
    (folder / "large.py").write_bytes(b"#" * 50_000_000)
    return {
        "binary file": folder / "binary.py",
        "not UTF-8": folder / "latin.py",
        "larger than 1 MB": folder / "large.py",
        "no such file": folder / "missing.py",
        "is a directory": folder,
    }


@pytest.mark.parametrize(
    "reason", ["binary file", "not UTF-8", "larger than 1 MB", "no such file", "is a directory"]
)
def test_an_unreadable_file(reason: str, tmp_path: Path) -> None:
    path = files(tmp_path)[reason]
    with pytest.raises(ListingError) as caught:
        load(os.fspath(path))
    (mistake,) = caught.value.mistakes
    assert mistake.code == "E001"
    assert reason in mistake.message
    assert path.name in mistake.message


def show(target: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "looptrans", "show", target]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "case", ["syntax", "product of loop variables", "while", "import in an expression"]
)
def test_the_command_line_says_it_too(case: str) -> None:
    text, ((code, line, _), *_) = CASES[case]
    found = show("-", text)
    assert found.returncode == 2
    assert found.stdout == ""
    assert f"error[{code}]" in found.stderr
    assert f"<stdin>:{line}:" in found.stderr
    assert "Traceback" not in found.stderr


def test_the_command_line_on_files(tmp_path: Path) -> None:
    for path in files(tmp_path).values():
        found = show(os.fspath(path))
        assert found.returncode == 2
        assert found.stderr.startswith("error[E001]: cannot read")
        assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 400 + "1" + ")" * 400,
        "-" * 100_000 + "1",
        "x = " + "1+" * 5_000 + "1",
        "x" + "[0]" * 3_000,
        "for i in range(N): A[i] = " + "abs(" * 150 + "1" + ")" * 150,
        "if a:\n pass\n" + "elif b:\n pass\n" * 3_000,
        "".join(" " * k + f"for i{k} in range(N):\n" for k in range(150)) + " " * 150 + "x = 1",
    ],
    ids=["parentheses", "signs", "sum", "subscripts", "calls", "elif", "loops"],
)
def test_deep_nesting(text: str) -> None:
    (mistake,) = mistakes_of(text + "\n")
    assert mistake.code == "E003"

"""The canonical listing parses back to the same program, and prints the same again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from looptrans.frontend import parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from tests.oracle.nests import Nest, nests

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.py"))


def read(text: str) -> Program:
    return parse(Source("t.py", text))


def check(text: str) -> Program:
    program = read(text)
    canonical = listing(program)
    again = read(canonical)
    assert again == program, canonical
    assert listing(again) == canonical
    return program


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec(path: Path) -> None:
    check(path.read_text())


TEXTS = {
    "precedence": "for i in range(N):\n"
    "    x[i] = -(a + b) * (c - (d - e)) / (f / (g * h)) ** -(k ** m) ** 2\n"
    "    y[i] = (-a) ** 2 - -a ** 2 + (a if i > 0 else b) * (c if not (d > e) else f)\n"
    "    z[i] = ((a > b) + (i < 3)) * (a > b and (c > d or e > f)) - (not (not a > b))\n",
    "index arithmetic": "for i in range(-N, 2 * (N - 1) - (3 - N), 2):\n"
    "    for j in range(max(0, i - 1), min(N, i + 2) - -1):\n"
    "        A[i - (j - 1), (i + 1) // 2 % 3, -(-i) + 4, (i + j) * -2 + 9 * N] = slope * (j - i)\n",
    "numbers": "NEG = -1e30\n\ndef f(x, n=-3, e=1e-05, *, big=1e999, k):\n"
    "    for i in range(k):\n        x[i] = NEG * n + e - -2.0 - -3 + float('-inf') + big + True\n",
    "rows": "def f(A, B):\n    for i in range(N):\n        q = A[i, :]\n        B[i, :] = q * 2.0\n"
    "        A[:, i] = B[:, i]\n",
    "comments": "# licence\n\n# what it is\n@jit\ndef f(A,  # the array\n"
    "      N):  # its size\n    # first\n    '''doc'''  # beside\n    # second\n"
    "    for i in range(N):  # rows\n        # S9: not a label\n"
    "        if i > 0:  # inner\n            A[i] = 1.0  # S4: here\n        # between\n"
    "        elif (i  # odd\n              < 0):  # other\n            A[i] = (2.0 +  # one\n"
    "                # own\n                3.0)  # two\n        else:  # rest\n"
    "            pass  # nothing\n            # more\n        # after\n    # last\n"
    "    return A  # done\n    # really\n",
    "several on a line": "for i in range(N): a = b = A[i]; c, d = a, b; A[i] = c + d  # S1\n",
    "guards": "for i in range(N):\n    if i % 2: A[i] = 1.0\n    elif A[i] > 0.0: A[i] = 2.0\n"
    "    else:  # c\n        if i > 3: A[i] = 3.0\n",
    "extremum": "for i in range(N):\n    s = x[i]\n    if t[i] > s: s = t[i]\n    y[i] = s\n"
    "    if y[i] <= z[i]:\n        z[i] = y[i]  # S7\n",
    "sizes read off": "def f(A, x, y: list):\n    M, N = A.shape  # the sizes\n    K = len(x)\n"
    "    for i in range(M):\n        for j in range(min(N, K)):\n"
    "            A[i, j] = x[j] + y[i]\n"
    "        for k in range(y.shape[0]): y[k] = 0.0\n",
    "contracts": 'def f(x, cu: Int[Array, "B+1"], page: Int[Array, "B T", "0:NP"], H: int):\n'
    "    k = H // 2\n    assert H % 4 == 0 and all(cu[b] <= cu[b + 1] for b in range(B)), 'why'\n"
    "    assert all(all(0 <= page[b, t] < NP for t in range(T)) for b in range(B))  # c\n"
    "    assert k > 0\n    for b in range(B):\n        for j in range(cu[b], cu[b + 1]):\n"
    "            x[page[b, j // 16] + j % 16] = 1.0\n",
    "helpers": "C = 2.0\n\ndef sq(v): return v * v\n\ndef f(A, N):\n    def g(u, w=C):\n"
    "        t = u + 1.0\n        if u > 0.0: return sq(t)\n        return w * t\n"
    "    h = lambda p: p // 2\n    for i in range(N):\n"
    "        A[h(i)] = g(A[i]) + g(A[i], w=3.0)\n",
    "method": "class Model:\n    N = 3\n    def forward(self, x):\n"
    "        for i in range(self.N):\n"
    "            self.A[i] = x[i] * self.scale\n            self.count += 1\n"
    "        return self.A\n",
    "reductions": "def f(A, N):\n    for i in range(N):\n"
    "        A[i, 0] = sum(A[i, e] * A[i, e] for e in range(3) for d in range(e) if d != i) + "
    "max(A[i]) - min([A[e, 0] for e in range(i)])\n",
    "selects": "def f(A, mask: Bool[Array, 'N'], N, causal: bool):\n    for i in range(N):\n"
    "        ok = mask[i] and i > 0\n        A[i] = A[i] if ok or not causal else -inf\n"
    "        A[i] = where(mask[i], A[i], 0.0) if causal else (1.0 if i else 2.0)\n",
    "creations": "def f(N):\n    A = zeros((N,))\n    B = np.full((N, 2), -inf, dtype=np.float32)\n"
    "    C = empty(N, int)\n    D = zeros(())\n    for i in range(N):\n        row = zeros(3)\n"
    "        A[i] = row[0] + B[i, 1]\n    return A, B, C\n",
    "docstring": 'def f(A):\n    """Quo"te \\\\ \\x07 \\"\\"\\" tab\\t and\n    é 漢 end\\""""\n'
    "    for i in range(3): A[i] = 0.0\n",
    "shadowed names": "for l in range(N):\n    sum = 0.0\n"
    "    for len in range(M): sum += A[l, len]\n    A[l, 0] = sum\n",
    "state": "for i in range(N):\n    if i == 0:\n        s = 0.0\n    s += x[i]\n    y[i] = s\n",
    "abs": "for i in range(N):\n    for j in range(N):\n        if abs(i - j) <= W:\n"
    "            A[i, j] = abs(i - j) * slope\n",
    "odd annotations": "def f(A: 'np.ndarray[float]', B: dict[str, \"it's\"], n: 'int', "
    "x: Float[Array, '']) -> None:\n    for i in range(n): A[i] = B[i] * x\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text(name: str) -> None:
    check(TEXTS[name])


def all_comments(text: str) -> list[str]:
    return sorted(
        part.strip() for line in text.splitlines() for part in line.split("#")[1:] if part.strip()
    )


def test_no_comment_is_lost() -> None:
    text = TEXTS["comments"]
    assert all_comments(listing(read(text))) == all_comments(text)


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_endings_do_not_matter(ending: str) -> None:
    for text in TEXTS.values():
        assert read(text.replace("\n", ending)) == read(text)


def test_a_byte_order_mark_does_not_matter() -> None:
    assert read("\ufeff" + TEXTS["rows"]) == read(TEXTS["rows"])


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests(data_guards=True, opaque=True))
def test_generated_nests(nest: Nest) -> None:
    try:
        check(nest.source)
    except ListingError as error:
        # An integer scalar set to something else in one branch, then used in a subscript.
        assert {m.code for m in error.mistakes} == {"E013"}, nest.source


# Texts from a grammar: deep expressions rather than deep nests.


class Texts:
    """Draws random texts of the language; the first choice of each drawing is the plainest."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.bound = 0

    def pick(self, *options: str) -> str:
        return options[self.random.randrange(len(options))]

    def index(self, depth: int, *leaves: str) -> str:
        if depth == 0 or self.random.randrange(3) == 0:
            return self.pick(*leaves)
        a, b = (self.index(depth - 1, *leaves) for _ in range(2))
        return self.pick(
            f"{a} + {b}",
            f"({a} - {b})",
            f"{a} - ({b})",
            f"({a}) * 3",
            f"-2 * ({a})",
            f"({a}) * N",
            f"({a}) // 4",
            f"({a}) % M",
            f"-({a})",
            f"min({a}, {b})",
            f"max({a}, {b}, 0)",
        )

    def inside(self, depth: int) -> str:
        return self.index(depth, "i", "j", "N", "M", "0", "1", "7", "-1", "k", "p[i]", "p[j + 1]")

    def condition(self, depth: int) -> str:
        operator = self.pick("<", "<=", ">", ">=", "==", "!=")
        if depth == 0 or self.random.randrange(3) == 0:
            a, b = self.inside(1), self.inside(1)
            value = f"{self.value(0)} {operator} ({self.value(0)})"
            return self.pick(
                f"{a} {operator} {b}", f"0 <= {a} < {b}", value, "flag[i]", "i % 2", "True"
            )
        a, b = self.condition(depth - 1), self.condition(depth - 1)
        return self.pick(f"({a} and {b})", f"{a} or {b}", f"not ({a})", f"({a} or {b}) and {a}")

    def value(self, depth: int) -> str:
        if depth == 0 or self.random.randrange(4) == 0:
            at = self.pick("i", "j + 1", "p[i]", "(i + 3) // 2", "max(i, k)")
            return self.pick("1.5", "2", "-3.0", "inf", "s", "c", f"x[{at}]", "A[i, j]", "i", "-k")
        a, b, test = self.value(depth - 1), self.value(depth - 1), self.condition(1)
        operator = self.pick("+", "-", "*", "/", "//", "%", "**")
        self.bound += 1
        e = f"e{self.bound}"
        return self.pick(
            f"{a} {operator} {b}",
            f"({a}) {operator} ({b})",
            f"-({a})",
            f"+({a})",
            f"({a} if {test} else {b})",
            f"exp({a})",
            f"abs({a})",
            f"max({a}, {b})",
            f"sum({a} * {e} for {e} in range({self.inside(1)}) if {e} != i)",
            f"where({test}, {a}, {b})",
            f"(({a}) > ({b}))",
            self.inside(2),
        )

    def statement(self) -> str:
        a, b = self.value(3), self.value(2)
        return self.pick(
            f"x[i] = {a}",
            f"A[i, j] {self.pick('+', '-', '*', '/', '**')}= {a}",
            f"s = {a}",
            f"s, x[j] = {a}, {b}",
            f"s = x[i] = {a}",
            f"k = {self.inside(2)}",
            "if x[i] > s: s = x[i]",
            f"if {self.condition(2)}: x[i] = {a}",
            f"s = {a}; x[i] = {b}",
        )

    def comment(self, number: int) -> str:
        return self.pick(
            "", f"  # S{number + 5}: a label", "  #", "  # note # RAW on x", "  ## é漢"
        )

    def program(self) -> str:
        outer, inner = ("N", "M", "4"), ("N", "M", "4", "i")
        lines = [
            "def f(x, A, c, N: int, M, flag: Bool[Array, 'N'], p: Int[Array, 'N']):"
            + self.comment(0),
            "    s = 0.0",
            f"    for i in range({self.index(2, *outer)}):{self.comment(-9)}",
            f"        for j in range({self.index(2, *inner)}, {self.index(2, *inner)}, -1):",
            "            k = i + 1",
        ]
        for number in range(self.random.randrange(1, 5)):
            lines.append(f"            {self.statement()}{self.comment(number)}")
        return "\n".join([*lines, "    return s", ""])


@settings(
    max_examples=120, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(st.randoms(use_true_random=False))
def test_generated_texts(random: Random) -> None:
    text = Texts(random).program()
    try:
        program = read(text)
    except ListingError as error:
        # A subscript that is always negative; a boolean joined with a number.
        assert {m.code for m in error.mistakes} <= {"E007", "E016"}, text
        return
    canonical = listing(program)
    assert read(canonical) == program, canonical
    assert listing(read(canonical)) == canonical


def test_the_generated_texts_are_mostly_listings() -> None:
    accepted = 0
    for seed in range(100):
        try:
            read(Texts(Random(seed)).program())
        except ListingError:
            continue
        accepted += 1
    assert accepted > 80

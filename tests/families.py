"""Random listings with the shapes transformations are about: sums, temporaries, passes, chains.

`tests.oracle.nests` draws anything the language allows; hardly any of it can be split, promoted or
done in phases. These are narrower, and each has near misses for which the same step is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from hypothesis import strategies as st

OPERATORS = ("+", "*", "max", "min")


Pick = Callable[..., str]


def listings(*names: str) -> st.SearchStrategy[str]:
    """Returns a strategy for the text of listings over M and N, all of small extents.

    Args:
        *names: the families to draw from; all of them by default.
    """
    families = [FAMILIES[name] for name in names or FAMILIES]
    return st.randoms(use_true_random=False).map(lambda random: _listing(random, families))


def _listing(random: Random, families: Sequence[Callable[[Random, Pick], str]]) -> str:
    def pick(*options: str) -> str:
        return options[random.randrange(len(options))]

    return families[random.randrange(len(families))](random, pick)


def _update(operator: str, cell: str, value: str) -> str:
    if operator in ("max", "min"):
        return f"{cell} = {operator}({cell}, {value})"
    return f"{cell} = {cell} {operator} {value}"


def _reduction(random: Random, pick: Pick) -> str:
    """A fold into s or s[i]; at times one whose steps do not commute, or whose result is read."""
    operator = OPERATORS[random.randrange(4)]
    rows = random.randrange(3)
    cell = ("s", "s[i]", "s[0]")[rows]
    start = "s = 1.0" if rows == 0 else "s = ones(M + 1)"
    value = pick("A[i, j]", "A[i, j] * 0.5", "A[i, j] + B[j]", "B[j]", "max(A[i, j], 0.25)")
    update = _update(operator, cell, value)
    update = pick(update, update, update, f"{cell} = 0.5 * {cell} + {value}", f"{cell} = {value}")
    guard = pick("", "", "if j <= i:", "if j % 2 == 0:")
    extra = pick("", "", "", f"B[j] = {cell}", "B[j] = A[i, j]")
    lines = [f"{update}"]
    if extra:
        lines.append(extra)
    inner = [f"            {line}" for line in lines]
    if guard:
        inner = [f"            {guard}", *(f"    {line}" for line in inner)]
    before = "\n        B[i] = 2.0" if pick("", "y") else ""
    return (
        'def f(A: Float[Array, "M N"], B: Float[Array, "M+N"]):\n'
        f"    {start}\n    for i in range(M):{before}\n"
        f"        for j in range({pick('N', 'N', '1, N', 'i, N')}):\n" + "\n".join(inner) + "\n"
        "    return s\n"
    )


def _passes(random: Random, pick: Pick) -> str:
    """Two or three loops over j, each using what the one before it made, or not quite."""
    first = _update(pick(*OPERATORS), "m[i]", pick("A[i, j]", "A[i, j] * B[j]"))
    second = pick(
        "l[i] = l[i] + exp(A[i, j] - m[i])",
        "l[i] = l[i] + A[i, j]",
        "B[j] = A[i, j] * 0.5",
        "A[i, j] = A[i, j] + m[i]",
        "B[j] = B[j] + m[i]",
        "C[j] = B[j + 1]",
        "m[i] = 0.5 * m[i] + B[j]",
    )
    third = pick("", "C[j] = A[i, j] / 2.0 + l[i]", "B[j + 1] = A[i, j]", "C[j] = C[j] + l[i]")
    last = f"        for j in range(N):\n            {third}\n" if third else ""
    other = pick("N", "N", "N", "N - 1")
    return (
        'def f(A: Float[Array, "M N"], B: Float[Array, "N+1"], C: Float[Array, "N"]):\n'
        "    m = ones(M)\n    l = zeros(M)\n    for i in range(M):\n"
        f"        for j in range(N):\n            {first}\n"
        f"        for j in range({other}):\n            {second}\n{last}"
        "    return m, l\n"
    )


def _temporaries(random: Random, pick: Pick) -> str:
    """Scalars that are set and read in one iteration, or carry something on."""
    order = [
        pick("t = A[i, j]", "t = A[i, j] + B[j]", "t = u * 0.5", "t = t + A[i, j]"),
        pick("u = t * 2.0", "u = A[i, j]", "u = max(t, 0.5)"),
        pick("A[i, j] = t + u", "C[i, j] = u", "B[j] = t", "B[0] = t + u"),
    ]
    if pick("", "", "y"):
        order[0], order[1] = order[1], order[0]
    body = "\n".join(f"            {line}" for line in order)
    end = pick("", "", "    B[0] = t\n", "    return t\n")
    return (
        'def f(A: Float[Array, "M N"], B: Float[Array, "N+1"], C: Float[Array, "M N"]):\n'
        "    t = 0.0\n    u = 0.0\n"
        f"    for i in range(M):\n        for j in range(N):\n{body}\n{end}"
    )


def _carried(random: Random, pick: Pick) -> str:
    """Locals of one iteration of i or j, some of which the next one finds as they were left."""
    first = pick(
        "t = B[i]", "t = B[i] * 2.0", "if i == 0:;    t = B[i]", "if i % 2 == 0:;    t = B[i]"
    )
    second = pick("u = A[i, j]", "u = t + A[i, j]", "if j == 0:;    u = A[i, j]", "t = t + A[i, j]")
    third = pick("C[i, j] = t * 2.0", "C[i, j] = u + 1.0" if "u =" in second else "C[i, j] = t")
    last = pick("", "", "B[i + 1] = t")
    lines = [f"        {line}" for line in first.split(";")]
    lines += ["        for j in range(N):"]
    lines += [f"            {line}" for line in (*second.split(";"), third)]
    lines += [f"        {last}"] if last else []
    return (
        'def f(A: Float[Array, "M N"], B: Float[Array, "M+1"], C: Float[Array, "M N"]):\n'
        "    for i in range(M):\n" + "\n".join(lines) + "\n"
    )


def _invariant(random: Random, pick: Pick) -> str:
    """A statement that does not change with j, or almost."""
    invariant = pick("t = exp(B[i])", "t = B[i] * 2.0", "t = B[i] + B[i + 1]", "t = D[i]")
    rest = pick("A[i, j] = t * A[i, j]", "C[i, j] = t", "B[i] = t + A[i, j]", "t = t + A[i, j]")
    more = pick("", "", "D[i] = A[i, j]", "C[i, j] = t + A[i, j]")
    lines = [invariant, rest, *([more] if more else [])]
    body = "\n".join(f"            {line}" for line in lines)
    return (
        'def f(A: Float[Array, "M N"], B: Float[Array, "M+1"], C: Float[Array, "M N"], '
        'D: Float[Array, "M"]):\n'
        f"    t = 0.0\n    for i in range(M):\n        for j in range({pick('N', 'N', 'i, N')}):\n"
        f"{body}\n" + pick("", "    return t\n")
    )


def _element(random: Random, pick: Pick) -> str:
    """An array element used over and over in a loop, loaded into a scalar or directly."""
    lines = pick(
        "x = m[i];y = max(x, A[i, j]);m[i] = y",
        "m[i] = 0.5 * m[i] + A[i, j]",
        "A[i, j] = m[i] + A[i, j]",
        "m[i] = A[i, j]",
        "x = m[i];A[i, j] = x + m[j]",
        "m[i] = m[i] + m[i + 1]",
        "m[i] = m[i] + m[1]",
        "m[1] = m[i] + A[i, j]",
        "m[i] = m[i] + m[j]",
        "m[i] = m[i] + A[i, j];B[j] = B[j] + m[i]",
    ).split(";")
    more = pick("", "", "B[j] = A[i, j]")
    body = "\n".join(f"            {line}" for line in [*lines, *([more] if more else [])])
    return (
        'def f(A: Float[Array, "M N"], B: Float[Array, "N"], m: Float[Array, "M+N+1"]):\n'
        f"    for i in range(M):\n        for j in range({pick('N', 'N', 'i', '1, N')}):\n{body}\n"
    )


def _aliased(random: Random, pick: Pick) -> str:
    """An element of a row, and another element of it that may be the same one."""
    first = pick("m[i] = m[i] + A[i, j]", "m[i] = A[i, j]", "m[i] = 0.5 * m[i]")
    second = pick("m[0] = m[0] + A[i, j]", "A[i, j] = m[1]", "m[M] = A[i, j]", "B[j] = m[i]")
    lines = [first, second] if pick("", "y") else [second, first]
    body = "\n".join(f"            {line}" for line in lines)
    return (
        'def f(A: Float[Array, "M N"], B: Float[Array, "N"], m: Float[Array, "M+2"]):\n'
        f"    for i in range(M):\n        for j in range(N):\n{body}\n"
    )


def _chain(random: Random, pick: Pick) -> str:
    """A stencil: what an iteration reads, another has written."""
    down, right = pick("- 1", "- 0", "- 2"), pick("- 1", "+ 1", "+ 0", "- 2")
    value = f"A[i {down}, j {right}]"
    value = pick(value, f"{value} + 0.5 * A[i, j]", f"{value} * B[j]", "A[i, j] + B[j]")
    more = pick("", "", "B[j] = A[i, j]", "B[j] = B[j - 1] + 1.0")
    lines = "\n".join(
        f"            {line}" for line in [f"A[i, j] = {value}", *([more] * bool(more))]
    )
    return (
        'def f(A: Float[Array, "M+2 N+4"], B: Float[Array, "N+4"]):\n'
        f"    for i in range(2, M + 2):\n        for j in range(2, N + 2):\n{lines}\n"
    )


FAMILIES = {
    "reduction": _reduction,
    "passes": _passes,
    "temporaries": _temporaries,
    "carried": _carried,
    "invariant": _invariant,
    "element": _element,
    "aliased": _aliased,
    "chain": _chain,
}

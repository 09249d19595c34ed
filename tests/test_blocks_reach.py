"""How far a nest goes into its arrays: what a launcher asks of extents that may be too few."""

from __future__ import annotations

import pytest

from looptrans.blocks.scheduled.reach import below, reached
from looptrans.emit.listing import emitted
from looptrans.frontend import parse
from looptrans.ir.listing import index_text
from looptrans.ir.source import Source

HEAD = 'def f(x: Float[Array, "N"], c: Float[Array, "F"], n: Int[Array, "B"], y, z):\n'


def asked(*lines: str) -> list[str]:
    body = "".join(f"    {line}\n" for line in lines)
    found = reached(parse(Source("listing.py", HEAD + body)))
    return [
        f"{name}.{axis} >= {index_text(least)}"
        + "".join(f" if {index_text(each)} > 0" for each in where)
        for name, axis, where, least in found
    ]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # What is declared and never left is not asked for, nor how large what is not declared is.
        (("for i in range(N):", "    y[i] = x[i]"), ["y.0 >= N"]),
        (("for i in range(1, N):", "    y[i] = x[i - 1]"), ["y.0 >= N if N - 1 > 0"]),
        (("for i in range(min(N, F)):", "    x[i] = c[i]"), []),
        # One too many, and as many as another array has.
        (("for i in range(N):", "    y[i] = x[i + 1]"), ["x.0 >= N + 1 if N > 0", "y.0 >= N"]),
        (("for i in range(F):", "    x[i] = c[i]"), ["x.0 >= F"]),
        (
            ("for i in range(F):", "    for j in range(B):", "        y[j] = x[i]"),
            ["y.0 >= B if F > 0", "x.0 >= F if B > 0"],
        ),
        # Conditions that may keep it inside: guards, ternaries, what stands behind an `and`.
        (("for i in range(F):", "    if i < N:", "        x[i] = c[i]"), []),
        (("for i in range(N):", "    x[i] = y[i + 1] if i + 1 < N else 0.0"), []),
        (("for i in range(F):", "    c[i] = sum(x[k] for k in range(F) if k < N)"), []),
        (("for i in range(F):", "    if i < B and n[i] > 0:", "        c[i] = 0.0"), []),
        # The last row has no iterations inside.
        (("for i in range(N):", "    for j in range(i + 1, N):", "        x[j] = x[i + 1]"), []),
        (
            ("for i in range(N):", "    for j in range(i + 1, N):", "        x[j] = x[i + 5]"),
            ["x.0 >= N + 4 if N - 1 > 0"],
        ),
        # The first row has none.
        (("for i in range(N):", "    for j in range(i):", "        x[j] = x[N - i]"), []),
        (
            ("for i in range(N):", "    for j in range(i):", "        x[j] = x[N + 1 - i]"),
            ["x.0 >= N + 1 if N - 1 > 0"],
        ),
        # Loops that leave the subscript as it is have iterations for some row.
        (
            ("for i in range(N):", "    for j in range(i + 1):", "        x[j] = c[F] + x[i]"),
            ["c.0 >= F + 1 if N > 0"],
        ),
        (
            ("for i in range(N):", "    for j in range(i, F):", "        c[j] = n[B]"),
            ["n.0 >= B + 1 if N > 0 if F > 0"],
        ),
        # One of them has more the later the row, another fewer.
        (
            (
                "for i in range(N):",
                "    for j in range(i):",
                "        for k in range(i, N - 1):",
                "            x[j] = c[F] + x[k]",
            ),
            ["c.0 >= F + 1 if N - 2 > 0"],
        ),
        # What a row reads is there, as all rows are.
        (("for i in range(N):", "    for j in range(i, F):", "        c[j] = x[i]"), []),
    ],
)
def test_what_is_asked_of_extents(lines: tuple[str, ...], found: list[str]) -> None:
    assert sorted(asked(*lines)) == sorted(found)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("for i in range(N):", "    c[i] = x[i - 1]"), ["x.0 >= -1 if N > 0"]),
        (("for i in range(1, N):", "    c[i] = x[i - 1] + x[N - 1 - i]"), []),
        (("for i in range(N):", "    c[i] = x[i - 1] if i > 0 else 0.0"), []),
        (("for i in range(N):", "    if i > 2:", "        c[i] = x[i - 3]"), []),
        (("for i in range(N):", "    for j in range(i):", "        x[j] = c[i - 1]"), []),
        # It hangs on the sizes.
        (
            ("for i in range(N):", "    for j in range(F):", "        x[i] = y[i - j + B]"),
            ["y.0 >= B - F + 1 if N > 0 if F > 0"],
        ),
        (("for i in range(N):", "    c[i] = x[n[i] - 1]"), []),
    ],
)
def test_what_may_be_negative(lines: tuple[str, ...], found: list[str]) -> None:
    body = "".join(f"    {line}\n" for line in lines)
    seen = [
        f"{name}.{axis} >= {index_text(least)}"
        + "".join(f" if {index_text(each)} > 0" for each in where)
        for name, axis, where, least in below(parse(Source("listing.py", HEAD + body)))
    ]
    assert seen == found


def test_a_cell_that_only_a_loop_touches_is_stored_where_it_is() -> None:
    """Without iterations the listing touches nothing: of no elements there is no first one."""
    text = 'def f(x: Float[Array, "N"]):\n    A = zeros(N)\n'
    text += "    for i in range(0, N):\n        A[0] = A[0] + x[i]\n    return A\n"
    given = parse(Source("listing.py", text))
    assert "tl.store(A_ptr, A, mask=0 < N)" in emitted(given).text
    rows = text.replace("A = zeros(N)", "A = zeros((N, 1))").replace("A[0]", "A[i, 0]")
    assert "0 < " not in emitted(parse(Source("listing.py", rows))).text.split("def f_kernel(")[1]


@pytest.mark.parametrize("asked", ["j >= 1", "j % 4 != 0", "i + j >= 1"])
def test_a_choice_that_keeps_a_read_inside_does_so_in_the_kernel(asked: str) -> None:
    """No launcher refuses what is never read, and no block reads it."""
    text = f"""
def shifted(x: Float[Array, "M N"], y: Float[Array, "M N"]):
    s = zeros(M)
    for i in range(M):
        for j in range(N):
            t = x[i, j - 1] if {asked} else 0.0
            s[i] += y[i, j] * t
    return s
"""
    module = emitted(parse(Source("listing.py", text))).text
    assert "would be negative" not in module
    assert "%" not in asked or "j[None, :] % 4 != 0" in module

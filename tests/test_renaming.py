"""Names mean nothing: a listing under other names gives the same module under other names."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.ir.listing import listing
from tests.analysis import BASIC, program, spec
from tests.renaming import name_map, renamed, same_words, shapes, stream, texts

SCHEMES = ("short", "long", "reversed")
OWN = {
    "window": """\
def window(X: Float[Array, "M N"], W: int):
    y = zeros(M)
    z = full(M, -inf)
    for i in range(M):
        for j in range(max(0, i - W + 1), min(N, i + 1)):
            y[i] = y[i] + X[i, j]  # S1: the sum
            z[i] = max(z[i], X[i, j])  # S2: the greatest
    return y, z
""",
    "products": """\
def products(A: Float[Array, "B K M"], C: Float[Array, "B K N"], t: Float[Array, "N"], u: float):
    P = zeros((B, M, N))
    for b in range(B):
        for i in range(M):
            for j in range(N):
                s = 0.0
                for k in range(K):
                    s += A[b, k, i] * C[b, k, j]  # S7
                P[b, i, j] = tanh(s * u) + t[j]  # S3
    return P
""",
    "squares": """\
def squares(A: Float[Array, "M K"], C: Float[Array, "K N"], y: Float[Array, "M"]):
    P = zeros((M, N))
    for i in range(M):
        for j in range(N):
            P[i, j] = sum(A[i, k] * C[k, j] for k in range(K))
    for i in range(M):
        s = 0.0
        for j in range(N):
            s += P[i, j] * P[i, j]
        y[i] = s
    return P
""",
    "logistic": """\
def logistic(x: Float[Array, "M"], r: float, T: int):
    y = zeros(M)
    for i in range(M):
        a = x[i]
        for t in range(T):
            a = r * a * (1.0 - a)
        y[i] = a
    return y
""",
    "lengths": """\
def lengths(X: Float[Array, "B N"], n: Int[Array, "B", "0:N+1"], g: Int[Array, "N", "0:N"]):
    y = zeros(B)
    for b in range(B):
        for j in range(n[b]):
            if X[b, j] > 0.0:
                y[b] = y[b] + X[b, g[j]]
    return y
""",
}


VARIANTS = ("attention_differential", "attention_dropout", "attention_paged", "attention_sinks")
# The elements of a row have no variable: they are called by their number, in small letters.
ROWS = ("flash_forward", "flash_forward_as_printed")


@cache
def text_of(name: str) -> str:
    return OWN[name] if name in OWN else listing(replace(spec(name), docstring=None))


def _pairs() -> list[tuple[str, str]]:
    """Pair listings with schemes: what takes long to derive has one of them, in turn."""
    found = []
    for number, name in enumerate([*OWN, *(path.stem for path in BASIC), *VARIANTS]):
        slow = name.startswith(("attention", "flash"))
        one = SCHEMES.index("short") if name in ROWS else number % 3
        found += [(name, s) for k, s in enumerate(SCHEMES) if not slow or k == one]
    return found


@cache
def module(text: str) -> str | None:
    """Return the module of a listing, or None where it is refused."""
    try:
        return emitted(program(text)).text
    except Refused:
        return None


@pytest.mark.parametrize(("name", "scheme"), _pairs())
def test_only_names_change(name: str, scheme: str) -> None:
    changed = renamed(text_of(name), scheme)
    assert len(set(changed.names.values())) == len(changed.names)
    assert not set(changed.names) & set(changed.names.values()) or scheme == "short"
    old, new = module(changed.before), module(changed.after)
    assert (old is None) == (new is None)
    if old is None or new is None:
        assert name not in OWN
        return
    before, after = stream(old), stream(new)
    names = name_map(before, after)
    numbers = {each: place for place, each in enumerate(changed.names)}
    others = {changed.names[each]: place for each, place in numbers.items()}
    loops = [changed.names[loop] for loop in sorted(changed.loops)]
    for mine, yours in names.items():
        ways = shapes(mine, numbers, changed.loops) & shapes(yours, others, loops)
        assert ways, (mine, yours)
    words = {**changed.names, **names}
    for mine, yours in zip(texts(before), texts(after), strict=True):
        assert same_words(mine, yours, words), (mine, yours)

"""Mutated and random texts: a Program or a clean ListingError, soon, and nothing is executed.

LOOPTRANS_TEST_ALL=1 takes more.
"""

from __future__ import annotations

import os
import random
import string
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from looptrans.frontend import load, parse
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.source import Source

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.py"))
SEEDS = [path.read_text() for path in SPECS] + [
    "def f(x, n, cu, N):\n"
    "    assert all(cu[b] <= cu[b + 1] for b in range(N))\n"
    "    g = lambda a: a * 2.0\n"
    "    M = 3\n"
    "    for b in range(N):\n"
    "        for j in range(cu[b], min(cu[b + 1], n[b])):  # why\n"
    "            if j > b and x[j] > 0.0:\n"
    "                k = j // 2\n"
    "                x[k], x[b] = g(x[j]), -inf\n"
    "            elif not (j == b): x[j] += sum(x[e] for e in range(M) if e != b)\n"
    "            else:\n"
    "                s = x[j] if b < 3 else 1e-3\n"
    "                if s > x[b]: x[b] = s\n"
    "    return x\n",
    "def f(A, x, N, D):\n"
    "    t = zeros(D); s = 0.0\n"
    "    for i in parallel(N):  # rows\n"
    "        private: (t, k)\n"
    "        k = i + 1\n"
    "        for j in parallel(0, D, 2):\n"
    "            with atomic(turn=j):  # in turn\n"
    "                A[k, j] = max(A[k, j], x[j])\n"
    "            barrier()\n"
    '            with reduce("+"): s += x[j]\n'
    "        with atomic():\n"
    "            for d in range(D): t[d] = x[d]; x[d] += t[d]\n"
    "    return s\n",
    "for i in range(N - 1, -1, -2):\n    C[i][j] *= beta; q = A[i, :]\n    s = q @ q\n",
    "class M:\n    def forward(self, n=3):\n        for i in range(self.N):\n"
    "            self.A[i] = self.A[i] * n\n",
]
_WORDS = (
    "for i in range(N): if else elif : = += @ ** // % ( ) [ ] { } , . ; # S1: assert all sum max "
    "min lambda x: def f(a): return while import os __import__('os') exec eval inf nan 0 -1 1e999 "
    "0xffffffffffffffffffffff not and or is in == != <= True None i j N A[i] A[:] A[i,:] zeros(N) "
    "full((N,M),-inf) global try: except: yield await async class := *a **k ... \\ \t \f \r \r\n "
    "'s' \"\"\" f'{x}' b'' self.N A.shape len(A) np.exp(x) where(i>j,1,2) uniform(s,i) .copy() "
    "parallel(N) prange(0,N) private: private: (x,y) with atomic(): with atomic(turn=j): barrier() "
    "with reduce('+'): atomic reduce barrier as "
    "é 漢 \u2028 \u00a0 \ufeff \x00 \x85 1j 08 1_000 ~ ^ | & << -> @x"
)
TOKENS = _WORDS.split(" ")
COUNT = 10_000 if "LOOPTRANS_TEST_ALL" in os.environ else 3_000
LIMIT = 1.0


def mutated(rng: random.Random) -> str:
    text = rng.choice(SEEDS)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(7):
            case 0:
                text = text[:at] + text[at + rng.randrange(1, 8) :]
            case 1:
                text = text[:at] + rng.choice(TOKENS) + text[at:]
            case 2:
                text = text[:at] + rng.choice(string.printable) + text[at + 1 :]
            case 3:
                lines = text.split("\n")
                lines.insert(rng.randrange(len(lines)), rng.choice(lines))
                text = "\n".join(lines)
            case 4:
                lines = text.split("\n")
                del lines[rng.randrange(len(lines))]
                text = "\n".join(lines) or "\n"
            case 5:
                words = text.split(" ")
                a, b = rng.randrange(len(words)), rng.randrange(len(words))
                words[a], words[b] = words[b], words[a]
                text = " ".join(words)
            case _:
                words = text.split(" ")
                words[rng.randrange(len(words))] = rng.choice(TOKENS)
                text = " ".join(words)
    return text


def scrambled(rng: random.Random) -> str:
    kind = rng.randrange(3)
    if kind == 0:
        return " ".join(rng.choice(TOKENS) for _ in range(rng.randrange(1, 40)))
    if kind == 1:
        return "".join(chr(rng.randrange(1, 0x300)) for _ in range(rng.randrange(1, 80)))
    body = [" ".join(rng.choice(TOKENS) for _ in range(rng.randrange(1, 9))) for _ in range(4)]
    return "for i in range(N):\n" + "".join(f"    {line}\n" for line in body)


@pytest.fixture
def no_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every way to run something from a text fail loudly."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was executed")

    monkeypatch.setattr(os, "system", refuse)
    monkeypatch.setattr("builtins.exec", refuse)
    monkeypatch.setattr("builtins.eval", refuse)


def attempt(text: str) -> bool:
    """Parse a text; tell whether it is a listing. Anything but a clean answer is an error."""
    started = time.process_time()
    try:
        program = parse(Source("t.py", text))
    except ListingError as error:
        assert error.mistakes
        assert error.render()
        accepted = False
    else:
        canonical = listing(program)
        again = parse(Source("t.py", canonical))
        assert again == program
        assert listing(again) == canonical
        accepted = True
    assert time.process_time() - started < LIMIT
    return accepted


@pytest.mark.usefixtures("no_execution")
@pytest.mark.parametrize("part", range(10))
def test_a_hostile_text_gets_a_clean_answer(part: int) -> None:
    rng = random.Random(part)
    accepted = 0
    for number in range(COUNT // 10):
        text = mutated(rng) if number % 4 else scrambled(rng)
        try:
            accepted += attempt(text)
        except Exception:
            print(repr(text))
            raise
    assert 0 < accepted < COUNT // 10


def test_random_bytes_get_a_clean_answer(tmp_path: Path) -> None:
    rng = random.Random(0)
    path = tmp_path / "t.py"
    for number in range(300):
        data = bytearray(rng.choice(SEEDS).encode())
        if number % 3 == 0:
            data = bytearray(rng.randbytes(rng.randrange(200)))
        for _ in range(rng.randrange(4)):
            data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
        path.write_bytes(data)
        try:
            load(os.fspath(path))
        except ListingError as error:
            assert error.render()


HUGE = {
    "statements": "for i in range(N):\n" + "    A[i] = A[i] + 1.0\n" * 5_000,
    "scalars": "for i in range(N):\n" + "".join(f"    s{k} = A[i] + {k}\n" for k in range(5_000)),
    "chain": "for i in range(N):\n    s0 = A[i]\n"
    + "".join(f"    s{k} = s{k - 1} + A[i]\n" for k in range(1, 5_000)),
    "lets": "for i in range(N):\n    k = i\n" + "    k = k + 1\n" * 3_000,
    "doubling": "for i in range(N):\n    k = i\n" + "    k = k + k\n" * 60 + "    A[i] = k\n",
    "rows": "for i in range(N):\n    q0 = A[i]\n"
    + "".join(f"    q{k} = q{k - 1}\n" for k in range(1, 3_000))
    + "    x[i] = q2999 @ q2999\n",
    "guards": "for i in range(N):\n" + "    if A[i] > 0.0: A[i] = 0.0\n" * 3_000,
    "nests": "for i in range(N):\n    A[i] = 0.0\n" * 2_000,
    "comments": "for i in range(N):\n" + "    # a comment\n    A[i] = 0.0  # another\n" * 2_500,
    "sizes": "for i in range(N):\n    x[i] = 0.0\n"
    + "".join(f"    if s{k} < s{k - 1}: x[i] = 1.0\n" for k in range(1, 1_000))
    + "    if s999 < i: x[i] = 2.0\n",
    "errors": "for i in range(N):\n" + "    A[i*i] = foo(i)\n" * 3_000,
    "one line": "for i in range(N): " + "A[i] = 0.0; " * 3_000 + "\n",
    "wide": "for i in range(N):\n    A[i] = max(" + "A[i], " * 5_000 + "1.0)\n",
}


@pytest.mark.parametrize("kind", HUGE)
def test_a_long_text_takes_no_long_time(kind: str) -> None:
    started = time.process_time()
    try:
        listing(parse(Source("t.py", HUGE[kind])))
    except ListingError as error:
        assert error.render()
    assert time.process_time() - started < 4.0


def test_nothing_heavy_is_imported() -> None:
    heavy = {"islpy", "sympy", "torch", "triton", "networkx"}
    code = "import sys, looptrans.frontend as f; f.load(sys.argv[1]); print(*sys.modules)"
    found = os.popen(f"{sys.executable} -c '{code}' {SPECS[0]}").read().split()
    assert found
    assert not heavy & set(found)
    assert "numpy" not in found

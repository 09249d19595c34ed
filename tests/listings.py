"""Random listings of the kinds that kernels are written for, for the tests of what is emitted.

`tests.families` and `tests.oracle.nests` draw loops that transformations and dependences are about;
these draw scores, passes, masks, reductions, scans and products. The sizes are M and N (rows and
columns, any number), E, D and F (short), B, H and R (very short), T (steps of a scan).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

EMPTY = {"M": 5, "N": 0, "E": 1, "D": 2, "F": 0, "B": 1, "H": 3, "G": 3, "R": 1, "T": 0, "W": 1}
SMALL = EMPTY | {"N": 3, "F": 3, "T": 2, "H": 2, "G": 1, "R": 2}
# Beyond a block of every kind, without filling the last one.
LARGE = {"M": 9, "N": 600, "E": 19, "D": 20, "F": 9, "B": 2, "H": 2, "G": 1, "R": 2, "T": 5, "W": 7}
OF_PRODUCTS = {"M": 36, "N": 70, "E": 6, "D": 5}
OF_ELEMENTS = {"M": 20, "N": 150}


def sizes(text: str) -> tuple[dict[str, int], ...]:
    """Return sizes to run a listing at: an empty row, a few elements, more than a block."""
    large = LARGE
    if "V: Float" in text or "C: Float" in text:
        large = LARGE | OF_PRODUCTS
    elif "g: Int" in text:
        large = LARGE | OF_ELEMENTS
    return EMPTY, SMALL, large


def listing(seed: int) -> str:
    """Return the text of a listing called `f`, the same for the same seed."""
    return FAMILIES[seed % len(FAMILIES)](_Draw(seed))


class _Draw:
    def __init__(self, seed: int) -> None:
        self.random = Random(f"listing {seed}")

    def one(self, *options: str) -> str:
        return options[self.random.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def some(self, least: int, most: int, *options: str) -> list[str]:
        count = least + self.random.randrange(most - least + 1)
        return [options[k] for k in sorted(self.random.sample(range(len(options)), count))]


def _function(arguments: list[str], lines: list[str]) -> str:
    return f"def f({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)


def _float(name: str, shape: str) -> str:
    return f'{name}: Float[Array, "{shape}"]'


def _within(around: str, lines: list[str]) -> list[str]:
    """Put a loop or a guard around lines."""
    return [around, *(f"    {line}" for line in lines)]


def _update(operator: str, cell: str, value: str) -> str:
    if operator in ("max", "min"):
        return f"{cell} = {operator}({cell}, {value})"
    if operator == "*":
        return f"{cell} = {cell} * (1.0 + 0.01 * ({value}))"
    return f"{cell} = {cell} + {value}"


def _start(operator: str) -> str:
    return {"max": "-inf", "min": "inf", "*": "1.0", "+": "0.0"}[operator]


# Attention: a score for each i and j, one to three passes over j, weights of the rows of V.


def _attention(d: _Draw) -> str:
    heads = d.one("", "", "h", "g")
    lead, at = ("H ", "h, ") if heads else ("", "")
    key_at = "h // R, " if heads == "g" else at
    key_lead = "G " if heads == "g" else lead
    turned = d.chance(30)
    k = f"K[{key_at}e, j]" if turned else f"K[{key_at}j, e]"
    arguments = [
        _float("Q", f"{lead}M E"),
        _float("K", f"{key_lead}E N" if turned else f"{key_lead}N E"),
        _float("V", f"{key_lead}N D"),
    ]
    lines: list[str] = []
    if heads == "g":
        arguments[0] = _float("Q", "H M E")
        arguments += ["R: int"]
        lines += ["assert H == G * R", "assert R >= 1"]
    q = f"Q[{at}i, e]"
    score = d.one(
        f"sum({q} * {k} for e in range(0, E))",
        f"scale * sum({q} * {k} for e in range(0, E))",
        f"0.125 * sum({q} * {k} for e in range(0, E)) - 0.5",
        f"-sum(abs({q} - {k}) for e in range(0, E))",
        f"-0.5 * sum(({q} - {k}) ** 2 for e in range(0, E))",
        f"max({q} * {k} for e in range(0, E))",
        f"sum({q} * {k} for e in range(0, E)) / (1.0 + abs(u[i]))",
        f"cap * tanh(sum({q} * {k} for e in range(0, E)) / cap)",
        f"sum({q} * {k} for e in range(0, E)) + w[j] - u[i]",
        f"sum({q} * ({k} + {q}) for e in range(0, E)) * 0.3",
        f"sum({q} * {k} * w[j] for e in range(0, E))",
        f"sum({q} * {k} for e in range(0, E) if e != i)",
    )
    if "scale" in score:
        arguments.append("scale: float")
    if "cap" in score:
        arguments.append("cap: float")
    if "u[" in score:
        arguments.append(_float("u", "M"))
    if "w[" in score:
        arguments.append(_float("w", "N"))
    mask = d.one(
        "", "", "", "j <= i", "(i + j) % 3 != 0", "pos[i] >= pos[j]", "j < i + W", "seen[j]"
    )
    if "pos" in mask:
        arguments.append('pos: Int[Array, "M"]')
        mask = "pos[i] >= key[j]"
        arguments.append('key: Int[Array, "N"]')
    if "W" in mask:
        arguments.append("W: int")
    if "seen" in mask:
        arguments.append('seen: Bool[Array, "N"]')
    upper = d.one("N", "N", "N", "min(N, i + 1)", "min(N, i + 3)", "n[i]", "N - 1")
    lower = d.one("0", "0", "0", "0", "min(1, N)", "max(0, i - 4)")
    if upper == "n[i]":
        arguments.append('n: Int[Array, "M", "0:N+1"]')
    if upper == "N - 1" and lower != "0":
        upper = "N"
    where = d.one("ternary", "guard") if mask else ""
    over = f"for j in range({lower}, {upper}):"
    cell = f"[{at}i]"
    shape = "(H, M)" if heads else "M"
    s = f"S[{at}i, j]" if d.chance(60) else "s"
    kept = s != "s"
    passes = d.one("softmax", "softmax", "softmax", "online", "plain", "norm", "max")
    if not kept and passes == "softmax":
        passes = "online"
    o = f"O[{at}d, i]" if d.chance(20) else f"O[{at}i, d]"
    o_shape = (
        ("(H, D, M)" if heads else "(D, M)")
        if "d, i" in o
        else ("(H, M, D)" if heads else "(M, D)")
    )
    v = f"V[{key_at}j, d]"
    lines.append(f"O = zeros({o_shape})")
    if kept:
        lines.append(f"S = zeros(({'H, ' if heads else ''}M, N))")
    value = f"{score} if {mask} else -inf" if where == "ternary" else score

    def guarded(inner: list[str]) -> list[str]:
        return _within(f"if {mask}:", inner) if where == "guard" else inner

    body: list[str] = []
    outputs = ["O"]
    if passes == "plain":
        weight = d.one(s, f"max({s}, 0.0)", f"1.0 / (1.0 + exp(-{s}))", f"{s} * {s}")
        if where == "ternary":
            value = f"{score} if {mask} else 0.0"
        body = _within(
            over,
            guarded(
                [f"{s} = {value}", *_within("for d in range(0, D):", [f"{o} += {weight} * {v}"])]
            ),
        )
    elif passes == "max":
        lines[next(n for n, line in enumerate(lines) if line.startswith("O ="))] = (
            f"O = full({o_shape}, -inf)"
        )
        body = _within(
            over,
            guarded(
                [
                    f"{s} = {value}",
                    *_within("for d in range(0, D):", [f"{o} = max({o}, {s} * {v})"]),
                ]
            ),
        )
        if where == "ternary":
            body = [
                over,
                f"    {s} = {score}",
                f"    if {mask}:",
                "        for d in range(0, D):",
                f"            {o} = max({o}, {s} * {v})",
            ]
    elif passes == "norm":
        lines.append(f"l = zeros({shape})")
        if where == "ternary":
            value = f"{score} if {mask} else 0.0"
        body = _within(
            over,
            guarded(
                [
                    f"{s} = {value}",
                    f"l{cell} += abs({s})",
                    *_within("for d in range(0, D):", [f"{o} += {s} * {v}"]),
                ]
            ),
        )
        body += _within("for d in range(0, D):", [f"{o} = {o} / (1.0 + l{cell})"])
    elif passes == "online":
        lines += [f"m = full({shape}, -inf)", f"l = zeros({shape})"]
        if where == "ternary":
            where = "guard"
            value = score
        body = _within(
            over,
            guarded(
                [
                    f"{s} = {value}",
                    f"new = max(m{cell}, {s})",
                    f"alpha = exp(m{cell} - new)",
                    f"p = exp({s} - new)",
                    f"l{cell} = l{cell} * alpha + p",
                    *_within("for d in range(0, D):", [f"{o} = {o} * alpha + p * {v}"]),
                    f"m{cell} = new",
                ]
            ),
        )
        body += _within("for d in range(0, D):", [f"{o} = {o} / l{cell}"])
    else:
        lines += [f"m = full({shape}, -inf)", f"l = zeros({shape})"]
        weight = f"exp({s} - m{cell})"
        body = _within(over, guarded([f"{s} = {value}", f"m{cell} = max(m{cell}, {s})"]))
        body += _within(over, guarded([f"l{cell} += {weight}"]))
        body += _within(
            over, guarded(_within("for d in range(0, D):", [f"{o} += {weight} / l{cell} * {v}"]))
        )
        extra = d.one("", "", "lse", "entropy", "S", "l", "P")
        if extra == "lse":
            lines.append(f"lse = zeros({shape})")
            body.append(f"lse{cell} = m{cell} + log(l{cell})")
            outputs.append("lse")
        elif extra == "entropy" and where != "ternary":
            lines.append(f"z = zeros({shape})")
            body += _within(over, guarded([f"z{cell} += {weight} * ({s} - m{cell})"]))
            outputs.append("z")
        elif extra == "S" and "n[" not in upper:
            outputs.append("S")
        elif extra == "l":
            outputs += ["l", "m"]
        elif extra == "P" and not heads:
            lines.append("P = zeros((M, N))")
            body += _within(over, guarded([f"P[i, j] = {weight} / l{cell}"]))
            outputs.append("P")
    if d.chance(20):
        body += _within("for d in range(0, D):", [f"{o} = max({o}, 0.0) * 2.0"])
    nest = _within("for i in range(0, M):", body)
    if heads:
        nest = _within("for h in range(0, H):", nest)
    return _function(arguments, [*lines, *nest, f"return {', '.join(outputs)}"])


# Reductions of rows or columns: several states in a fold, guards, epilogues, more passes.


def _reductions(d: _Draw) -> str:
    arguments = [_float("X", "M N")]
    x = "X[i, j]"
    if d.chance(20):
        arguments, x = [_float("X", "N M")], "X[j, i]"
    used: set[str] = set()

    def value() -> str:
        found = d.one(
            x,
            f"{x} * {x}",
            f"abs({x})",
            f"{x} * w[j]",
            f"{x} - u[i]",
            f"exp(0.25 * {x})",
            "j * 0.01",
            "w[j]",
            f"max({x}, 0.0)",
            f"{x} / (1.0 + abs(w[j]))",
            "1.0",
            f"min({x}, u[i])",
            f"{x} if {x} > 0.0 else 0.5",
            f"{x} + 0.01 * (i - j)",
        )
        used.update(n for n in ("w", "u") if f"{n}[" in found)
        return found

    states = d.some(1, 3, "a", "b", "c")
    operators = {s: d.one("+", "+", "max", "min", "*") for s in states}
    scalars = {s for s in states if d.chance(30)}
    lines = []
    for s in states:
        lines.append(f"{s} = full(M, {d.one(_start(operators[s]), _start(operators[s]), '0.5')})")
    lower, upper = d.one("0", "0", "0", "i", "max(0, i - 3)"), d.one("N", "N", "N", "min(N, i + 1)")
    over = f"for j in range({lower}, {upper}):"
    if d.chance(10):
        over = "for j in range(N - 1, -1, -1):"
    elif d.chance(10):
        over = "for j in range(0, N, 3):"
    guard = d.one("", "", "", f"if {x} > 0.0:", "if j % 2 == 0:", "if j != i:", "if j > 2 * i:")
    before: list[str] = []
    inner: list[str] = []
    after: list[str] = []
    for s in states:
        cell = f"{s}_i" if s in scalars else f"{s}[i]"
        if s in scalars:
            before.append(f"{cell} = {_start(operators[s])}")
            after.append(f"{s}[i] = {cell}")
        if d.chance(25):
            inner.append(f"t = {value()}")
            inner.append(_update(operators[s], cell, d.one("t", "t * 0.5", "t - 1.0")))
        else:
            inner.append(_update(operators[s], cell, value()))
    if guard:
        cut = d.random.randrange(len(inner)) if d.chance(30) else 0
        if cut and inner[cut].split(" ")[-1] and "t" in inner[cut]:
            cut = 0
        inner = [*inner[:cut], *_within(guard, inner[cut:])]
    body = [*before, *_within(over, inner), *after]
    first = states[0]
    second = d.one("", "", "dev", "norm", "again", "scale")
    outputs = list(states)
    if second == "dev":
        lines.append("v = zeros(M)")
        body += _within("for j in range(0, N):", [f"v[i] += ({x} - {first}[i] / N) ** 2"])
        outputs.append("v")
    elif second == "norm":
        lines.append("Y = zeros((M, N))")
        body += _within(
            "for j in range(0, N):", [f"Y[i, j] = ({x} - {first}[i]) / (1.0 + abs({first}[i]))"]
        )
        outputs.append("Y")
    elif second == "again":
        lines.append("v = full(M, -inf)")
        body += _within(over, [f"v[i] = max(v[i], {x} * {first}[i])"])
        outputs.append("v")
    elif second == "scale":
        body.append(f"{first}[i] = {first}[i] * 0.5 + i")
    if d.chance(20):
        body.append(f"if {first}[i] > 1.0:")
        body.append(f"    {first}[i] = 1.0")
    arguments += [_float("w", "N")] if "w" in used else []
    arguments += [_float("u", "M")] if "u" in used else []
    nest = _within("for i in range(0, M):", body)
    d.random.shuffle(outputs)
    return _function(arguments, [*lines, *nest, f"return {', '.join(outputs)}"])


# Products of matrices with two to four dimensions, and what is done to them.


def _products(d: _Draw) -> str:
    a = d.one("A[i, e]", "A[e, i]")
    c = d.one("C[e, j]", "C[j, e]")
    arguments = [
        _float("A", "M E" if a == "A[i, e]" else "E M"),
        _float("C", "E N" if c == "C[e, j]" else "N E"),
    ]
    term = d.one(
        f"{a} * {c}",
        f"{a} * {c}",
        f"{a} * w[e] * {c}",
        f"{a} * {c} + {a}",
        f"({a} - {c}) ** 2",
        f"abs({a} * {c})",
        f"{a} * exp(0.1 * {c})",
        f"({a} + u[i]) * {c}",
        f"{a} * {c} * r[j]",
        f"{a} / (1.0 + w[e] ** 2) * {c}",
    )
    for name, size in (("w", "E"), ("u", "M"), ("r", "N")):
        if f"{name}[" in term:
            arguments.append(_float(name, size))
    lines = ["O = zeros((M, N))"]
    bounds = d.one(
        "0, E", "0, E", "0, E", "0, min(E, i + 1)", "max(0, i - 2), min(E, i + 4)", "j % 2, E"
    )
    guard = d.one("", "", "", "if e % 2 == 0:", "if e <= j:", "if keep[e]:")
    if "keep" in guard:
        arguments.append('keep: Bool[Array, "E"]')
    way = d.one("cell", "scalar", "sum", "max")
    if way == "sum":
        condition = f" {guard[:-1]}" if guard else ""
        update = [f"O[i, j] = sum({term} for e in range({bounds}){condition})"]
    elif way == "max":
        lines = ["O = full((M, N), -inf)"]
        inner = [f"O[i, j] = max(O[i, j], {term})"]
        update = _within(f"for e in range({bounds}):", _within(guard, inner) if guard else inner)
    else:
        acc = "acc" if way == "scalar" else "O[i, j]"
        inner = [f"{acc} = {acc} + {term}"]
        update = _within(f"for e in range({bounds}):", _within(guard, inner) if guard else inner)
        if way == "scalar":
            update = ["acc = 0.0", *update, "O[i, j] = acc"]
    update += d.some(
        0,
        1,
        "O[i, j] = O[i, j] * 0.5 + 1.0",
        "O[i, j] = max(O[i, j], 0.0)",
        "O[i, j] = O[i, j] / (1.0 + abs(O[i, j]))",
        "O[i, j] = O[i, j] + bias[j]",
    )
    if "bias" in update[-1]:
        arguments.append(_float("bias", "N"))
    outputs = ["O"]
    tail: list[str] = []
    more = d.one("", "", "rows", "columns", "same", "second")
    nest = _within("for j in range(0, N):", update)
    if more == "rows":
        lines.append("s = zeros(M)")
        nest += _within("for j in range(0, N):", ["s[i] += O[i, j]"])
        outputs.append("s")
    elif more == "same":
        lines.append("s = zeros(M)")
        nest += ["    s[i] += O[i, j] * O[i, j]"]
        outputs = ["s"] if d.chance(50) else ["s", "O"]
    elif more == "columns":
        lines.append("s = full(N, -inf)")
        tail = _within(
            "for i in range(0, M):", _within("for j in range(0, N):", ["s[j] = max(s[j], O[i, j])"])
        )
        outputs = ["s"]
    elif more == "second":
        arguments.append(_float("Z", "N F"))
        lines.append("Y = zeros((M, F))")
        tail = _within(
            "for i in range(0, M):",
            _within(
                "for g in range(0, F):",
                _within("for j in range(0, N):", ["Y[i, g] += O[i, j] * Z[j, g]"]),
            ),
        )
        outputs = d.one("Y", "Y, O").split(", ")
    full = _within("for i in range(0, M):", nest)
    if d.chance(15) and not more:
        full = _within("for j in range(0, N):", _within("for i in range(0, M):", update))
    return _function(arguments, [*lines, *full, *tail, f"return {', '.join(outputs)}"])


# One element at a time: guards, ternaries, gathers, steps, integers and truth values.


def _elements(d: _Draw) -> str:
    arguments = [_float("X", "M N"), _float("u", "M"), 'g: Int[Array, "N", "0:M"]']
    arguments.append('k: Int[Array, "M N"]')
    lines = [d.one("Y = zeros((M, N))", "Y = full((M, N), 2.5)", "Y = ones((M, N))")]
    whole = [
        "i // 3",
        "(i - j) // 2",
        "(i - 7) % 4",
        "k[i, j] % 3",
        "k[i, j] // 2",
        "(j - i) % 5",
        "max(i, j)",
        "min(k[i, j], 2)",
        "i * j",
        "abs(k[i, j])",
        "-k[i, j]",
        "int(X[i, j] * 4.0)",
        "(0 - k[i, j]) // 3",
        "k[i, j] % -3",
    ]

    def value() -> str:
        return d.one(
            "X[i, j]",
            "X[i, j] * u[i]",
            "X[i, j] * X[i, j] - 1.0",
            "tanh(X[i, j])",
            "u[g[j]]",
            f"X[i, j] * ({d.one(*whole)})",
            f"{d.one(*whole)} + 0.5",
            "exp(X[i, j] - u[i])",
            "X[i, j] if i > j else u[i]",
            "X[i, j] if X[i, j] > 0.0 else 0.0",
            "sqrt(abs(X[i, j]))",
            "max(X[i, j], u[i], 0.0)",
            "X[i, j] / (2.0 + u[i] ** 2)",
            "-X[i, j]",
            "log(1.0 + X[i, j] ** 2)",
            "where(k[i, j] > 0, X[i, j], u[i])",
            "sin(X[i, j]) + cos(u[i])",
            "X[i, j] // 0.5",
            "X[i, j] % 0.75",
            "X[i, N - 1 - j]",
            "X[i, (j + 3) % N]",
            "float16(X[i, j])",
            "X[i, j] ** 3",
            "2.0 ** (0.1 * X[i, j])",
            "abs(X[i, j]) ** 0.5",
        )

    inner = []
    if d.chance(40):
        inner.append(f"t = {value()}")
        if d.chance(40):
            inner.append(f"if {d.one('t > 0.0', 'i > 3', 'k[i, j] == 0', 'j % 3 == 1')}:")
            inner.append(f"    t = {d.one('t * 2.0', '-t', 'u[i]', '0.0')}")
        inner.append(f"Y[i, j] = t + {value()}")
    else:
        inner.append(f"Y[i, j] = {value()}")
    guard = d.one(
        "",
        "",
        "if i > j:",
        "if X[i, j] > 0.25:",
        "if k[i, j] >= 1 and i < 5:",
        "if j >= 1:",
        "if i != j or k[i, j] > 0:",
        "if not i > j:",
    )
    if guard:
        inner = _within(guard, inner)
        if d.chance(50):
            inner += _within("else:", [f"Y[i, j] = {value()}"])
    outputs = ["Y"]
    extra = d.one("", "", "again", "int", "bool", "u", "shift")
    if extra == "again":
        inner.append(f"Y[i, j] = Y[i, j] * 0.5 + {value()}")
    elif extra == "int":
        lines.append(d.one("Z = zeros((M, N), int)", "Z = full((M, N), 3, int)"))
        inner.append(f"Z[i, j] = {d.one(*whole)}")
        outputs.append("Z")
    elif extra == "bool":
        lines.append("Z = zeros((M, N), bool)")
        inner.append(f"Z[i, j] = {d.one('X[i, j] > u[i]', 'i <= j', 'k[i, j] == 1')}")
        outputs.append("Z")
    over = d.one(
        "for j in range(0, N):",
        "for j in range(0, N):",
        "for j in range(0, N, 2):",
        "for j in range(N - 1, -1, -1):",
        "for j in range(1, N):",
        "for j in range(0, min(i, N)):",
    )
    nest = _within(
        d.one("for i in range(0, M):", "for i in range(0, M):", "for i in range(M - 1, -1, -2):"),
        _within(over, inner),
    )
    if extra == "shift":
        lines.append("Z = zeros((M, N))")
        nest += _within(
            "for i in range(0, M):", _within("for j in range(1, N):", ["Z[i, j] = Y[i, j - 1]"])
        )
        outputs.append("Z")
    elif extra == "u":
        nest += _within("for i in range(0, M):", ["u[i] = u[i] * 2.0"])
    return _function(arguments, [*lines, *nest, f"return {', '.join(outputs)}"])


# Loops that stay loops over single elements: recurrences, argmax, ordered updates, nests in them.


def _scans(d: _Draw) -> str:
    arguments = [_float("a", "M T"), _float("x", "M T"), _float("X", "M T N")]
    lines = ["h = zeros(M)", "y = zeros((M, T))"]
    step = d.one(
        "h[i] = a[i, t] * h[i] + x[i, t]",
        "h[i] = tanh(h[i] + x[i, t])",
        "h[i] = max(h[i] - 0.5, x[i, t])",
        "h[i] = x[i, t] - h[i]",
        "h[i] = 0.9 * h[i] + s",
    )
    inner = []
    if step.endswith("s"):
        inner += ["s = 0.0", *_within("for j in range(0, N):", ["s = s + X[i, t, j] * h[i]"])]
    inner.append(step)
    inner += d.some(0, 1, "y[i, t] = h[i]", "y[i, t] = h[i] * x[i, t]")
    outputs = ["h"] + (["y"] if "y[" in inner[-1] else [])
    more = d.one("", "", "argmax", "pair", "fold", "matrix")
    if more == "argmax":
        lines += ["best = full(M, -inf)", "where_ = zeros(M)"]
        inner += _within("if x[i, t] > best[i]:", ["best[i] = x[i, t]", "where_[i] = t"])
        outputs += ["best", "where_"]
    elif more == "pair":
        lines += ["p = ones(M)", "q = zeros(M)"]
        inner += ["p[i], q[i] = p[i] * 0.5 + q[i], p[i] - x[i, t]"]
        outputs += ["p", "q"]
    elif more == "fold":
        lines += ["z = zeros((M, T))"]
        inner += _within("for j in range(0, N):", ["z[i, t] = max(z[i, t], X[i, t, j] * h[i])"])
        outputs += ["z"]
    elif more == "matrix":
        lines += ["c = zeros((M, N))"]
        inner += _within(
            "for j in range(0, N):", ["c[i, j] = c[i, j] * 0.5 + X[i, t, j] * a[i, t]"]
        )
        outputs += ["c"]
    guard = d.one("", "", "if a[i, t] > 0.0:", "if t > 0:", "if t < i:")
    if guard:
        inner = _within(guard, inner)
    over = d.one(
        "for t in range(0, T):",
        "for t in range(0, T):",
        "for t in range(T - 1, -1, -1):",
        "for t in range(1, T):",
    )
    nest = _within("for i in range(0, M):", _within(over, inner))
    if not d.chance(70):
        nest = _within(over, _within("for i in range(0, M):", inner))
    return _function(arguments, [*lines, *nest, f"return {', '.join(outputs)}"])


# Temporaries: read after their loop, carried, guarded, shared by several nests.


def _temporaries(d: _Draw) -> str:
    arguments = [_float("X", "M N"), _float("w", "N")]
    lines = ["a = zeros(M)", "T = zeros((M, N))", "r = zeros(N)"]
    first = d.one(
        "T[i, j] = X[i, j] * w[j]", "T[i, j] = max(X[i, j], 0.5)", "T[i, j] = X[i, j] + a[i]"
    )
    guard = d.one("", "", "if j <= i:", "if X[i, j] > 0.0:", "if j % 2 == 1:")
    one = _within("for j in range(0, N):", _within(guard, [first]) if guard else [first])
    two = d.one(
        "for j in range(0, N):;    a[i] = a[i] + T[i, j]",
        "for j in range(0, N):;    a[i] = max(a[i], T[i, j] * 2.0)",
        "for j in range(1, N):;    a[i] = a[i] + T[i, j] - T[i, j - 1]",
        "for j in range(0, N):;    T[i, j] = T[i, j] * T[i, j];    a[i] = a[i] + T[i, j]",
        "for j in range(0, N):;    t = T[i, j];    if t > 0.0:;        t = -t;    a[i] = a[i] + t",
        "t = 0.0;for j in range(0, N):;    t = T[i, j];a[i] = t",
        "t = 1.0;for j in range(0, N):;    if X[i, j] > 0.0:;        t = w[j];    a[i] = a[i] + t",
        "n = 0;for j in range(0, N):;    if X[i, j] > 0.0:;        n = n + 1;a[i] = n",
        "t = 0.0;u = 0.0;for j in range(0, N):;    t = t + T[i, j];    u = u + t;a[i] = u",
        "t = 0.0;for j in range(0, N):;    u = t;    t = t + X[i, j];    a[i] = a[i] + u * w[j]",
    ).split(";")
    three = d.one(
        "",
        "for j in range(0, N):;    T[i, j] = T[i, j] / (1.0 + a[i] * a[i])",
        "for j in range(0, N):;    r[j] = r[j] + T[i, j]",
        "for j in range(0, N):;    X[i, j] = T[i, j] + 1.0",
        "a[i] = a[i] + 1.0",
        "for j in range(0, N):;    X[i, j] = X[i, j] - a[i]",
        "for j in range(0, N):;    r[j] = max(r[j], a[i])",
    )
    body = [*one, *two, *(three.split(";") if three else [])]
    outputs = d.some(1, 2, "a", "T", "r")
    nest = _within("for i in range(0, M):", body)
    if d.chance(30):
        nest = [
            *_within("for i in range(0, M):", one),
            *_within("for i in range(0, M):", body[len(one) :]),
        ]
    tail = d.one(
        "",
        "",
        "for i in range(0, M):;    a[i] = a[i] * 2.0",
        "q = 0.0;for i in range(0, M):;    q = q + a[i]",
        "for i in range(1, M):;    a[i] = a[i] + a[i - 1]",
        "q = 0.0;for i in range(0, M):;    for j in range(0, N):;        q = max(q, T[i, j])",
    )
    if tail:
        nest += tail.split(";")
        if tail.startswith("q"):
            outputs.append("q")
    return _function(arguments, [*lines, *nest, f"return {', '.join(outputs)}"])


# Three dimensions: batches, nested folds, sums of sums, lengths read from memory.


def _batches(d: _Draw) -> str:
    arguments = [_float("X", "B M N"), _float("w", "N"), 'n: Int[Array, "B", "0:N+1"]']
    x = "X[b, i, j]"
    operator = d.one("+", "+", "max", "*", "min")
    value = d.one(x, f"{x} * w[j]", f"abs({x})", f"{x} * {x}", "w[j]")
    over = d.one(
        "for j in range(0, N):",
        "for j in range(0, n[b]):",
        "for j in range(n[b], N):",
        "for j in range(0, min(n[b], i + 1)):",
    )
    cell = d.one("a[b]", "a[b, i]", "a[b, j]", "a[i]", "a[j]", "a[b]", "a[i, b]")
    sizes = {"b": "B", "i": "M", "j": "N"}
    names = cell[2:-1].split(", ")
    shape = ", ".join(sizes[name] for name in names)
    lines = [f"a = full({f'({shape})' if len(names) > 1 else shape}, {_start(operator)})"]
    inner = [_update(operator, cell, value)]
    outputs = ["a"]
    more = d.one("", "", "other", "nested", "guard")
    if more == "other":
        lines.append("c = zeros((B, M))")
        inner.append(f"c[b, i] = c[b, i] + {x}")
        outputs.append("c")
    elif more == "guard":
        inner = _within(
            d.one(f"if {x} > 0.0:", "if i <= j:", "if j < n[b]:", "if (i + j) % 2 == b % 2:"), inner
        )
    body = _within("for i in range(0, M):", _within(over, inner))
    if more == "nested":
        lines.append("c = zeros((B, M))")
        body = _within(
            "for i in range(0, M):",
            [
                "s = 0.0",
                *_within(over, [f"s = s + {value}"]),
                "c[b, i] = s",
                _update(operator, cell.replace("j", "i") if "j" not in names else cell, "s * 0.01"),
            ],
        )
        if "j" in names:
            body = body[:-1]
        outputs.append("c")
    if d.chance(30) and "i" not in names and "j" not in names:
        body.append(f"{cell} = {cell} * 0.5")
    return _function(
        arguments, [*lines, *_within("for b in range(0, B):", body), f"return {', '.join(outputs)}"]
    )


FAMILIES: tuple[Callable[[_Draw], str], ...] = (
    _attention,
    _reductions,
    _products,
    _elements,
    _scans,
    _temporaries,
    _batches,
)

"""Random listings to differentiate: values, sums, softmaxes, products, in a few stages."""

from __future__ import annotations

import random


class Made:
    """A random listing over A (M, N), B (N, K), v (N), u (M) and a number c."""

    def __init__(self, seed: int, most: int = 3) -> None:
        self.most = most
        self.random = random.Random(seed)
        self.two = ["A[i, j]"]  # values for i and j
        self.row = ["u[i]"]  # values for i
        self.lines: list[str] = []
        self.heads: list[str] = []
        self.returned: list[str] = []
        self.count = 0

    def value(self, atoms: list[str], depth: int = 2) -> str:
        pick = self.random.choice
        if depth == 0 or self.random.random() < 0.2:
            return pick([*atoms, "c"])
        a, b = self.value(atoms, depth - 1), self.value(atoms, depth - 1)
        return pick(
            [
                f"({a} + {b})",
                f"({a} - {b})",
                f"{a} * ({b})",
                f"({a}) * ({a})",
                f"tanh({a})",
                f"exp(0.3 * ({a}) - {b} * 0.2)",
                f"({a}) / (1.0 + ({b}) ** 2)",
                f"sqrt(1.0 + ({a}) ** 2)",
                f"max({a}, {b} * 0.5)",
                f"abs({a} + 0.3)",
                f"sin({a})",
                f"log(2.0 + ({a}) ** 2)",
                f"(({a}) if {b} > 0.1 else 0.5 * ({b}))",
            ]
        )

    def both(self) -> list[str]:
        return [*self.two, *self.row, "v[j]"]

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def stage(self) -> None:
        kind = self.random.choice(["pointwise", "sum", "softmax", "product", "columns", "triangle"])
        value = self.value(self.both())
        match kind:
            case "pointwise":
                T = self.name("T")
                self.heads.append(f"{T} = zeros((M, N))")
                self.lines += ["    for j in range(0, N):", f"        {T}[i, j] = {value}"]
                self.two.append(f"{T}[i, j]")
            case "sum" | "triangle":
                s = self.name("s")
                stop = "N" if kind == "sum" else "min(N, i + 1)"
                self.lines += [f"    {s} = 0.0", f"    for j in range(0, {stop}):"]
                self.lines += [f"        {s} = {s} + {value}"]
                self.row.append(s)
            case "softmax":
                m, n, r = self.name("m"), self.name("n"), self.name("r")
                self.lines += [f"    {m} = -inf", "    for j in range(0, N):"]
                self.lines += [f"        {m} = max({m}, {value})", f"    {n} = 0.0"]
                self.lines += ["    for j in range(0, N):"]
                self.lines += [f"        {n} = {n} + exp({value} - {m})", f"    {r} = 0.0"]
                self.lines += ["    for j in range(0, N):"]
                self.lines += [f"        {r} = {r} + exp({value} - {m}) / {n} * v[j]"]
                self.row.append(r)
            case "product":
                Y = self.name("Y")
                self.heads.append(f"{Y} = zeros((M, K))")
                self.lines += ["    for k in range(0, K):", "        for j in range(0, N):"]
                self.lines += [f"            {Y}[i, k] = {Y}[i, k] + ({value}) * B[j, k]"]
                self.returned.append(Y)
            case _:
                z = self.name("z")
                self.heads.append(f"{z} = zeros(N)")
                self.lines += ["    for j in range(0, N):"]
                self.lines += [f"        {z}[j] = {z}[j] + {value}"]
                self.returned.append(z)

    def text(self) -> str:
        for _ in range(self.random.randint(2, self.most)):
            self.stage()
        y = self.name("y")
        self.heads.append(f"{y} = zeros(M)")
        self.lines.append(f"    {y}[i] = {self.value(self.row)} + {self.row[-1]}")
        if len(self.two) > 1:
            X = self.name("X")
            self.heads.append(f"{X} = zeros((M, N))")
            last = f"{self.two[-1]} * ({self.row[-1]})"
            self.lines += ["    for j in range(0, N):", f"        {X}[i, j] = {last}"]
            self.returned.append(X)
        arguments = 'A: Float[Array, "M N"], B: Float[Array, "N K"], v: Float[Array, "N"], '
        arguments += 'u: Float[Array, "M"], c: float'
        lines = [f"def f({arguments}):", *(f"    {head}" for head in self.heads)]
        lines += ["    for i in range(0, M):", *(f"    {line}" for line in self.lines)]
        return "\n".join([*lines, f"    return {', '.join([*self.returned, y])}"]) + "\n"

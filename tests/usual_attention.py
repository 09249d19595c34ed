"""Listings as people have them around attention and data tables, with sizes where needed."""

ATTENTION: dict[str, tuple[str, dict[str, float]]] = {
    "masked": (
        """\
def attn(
    Q: Float[Array, "M E"],
    K: Float[Array, "N E"],
    V: Float[Array, "N D"],
    mask: Bool[Array, "M N"],
    scale: float = 0.5,
):
    O = zeros((M, D))
    for i in range(M):
        mx = -inf
        l = 0.0
        for j in range(N):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) * scale
            s = s if mask[i, j] and j <= i else -inf
            new = max(mx, s)
            corr = exp(mx - new) if new > -inf else 1.0
            p = exp(s - new) if new > -inf else 0.0
            l = l * corr + p
            for d in range(D):
                O[i, d] = O[i, d] * corr + p * V[j, d]
            mx = new
        if l > 0.0:
            O[i] = O[i] / l
    return O
""",
        {},
    ),
    "gqa2": (
        """\
def gqa(Q, K, S, H, G):
    R = H // G
    for h in range(H):
        for i in range(M):
            for j in range(N):
                s = 0.0
                for e in range(E):
                    s += Q[h, i, e] * K[h // R, j, e]
                S[h, i, j] = s
    return S
""",
        {"H": 4, "G": 2},
    ),
    "varlen": (
        """\
def varlen(x: Float[Array, "T"], cu: Int[Array, "B+1"], n: Int[Array, "B"], y: Float[Array, "T"]):
    assert all(cu[b] <= cu[b + 1] for b in range(B))
    assert all(n[b] <= cu[b + 1] - cu[b] for b in range(B))
    assert cu[0] == 0
    assert cu[B] <= T
    for b in range(B):
        acc = 0.0
        for i in range(n[b]):
            acc += x[cu[b] + i]
            y[cu[b] + i] = acc
""",
        {"B": 3, "T": 12},
    ),
    "paged": (
        """\
def paged(
    q: Float[Array, "B E"],
    K: Float[Array, "NP P E"],
    page: Int[Array, "B T", "0:NP"],
    n: Int[Array, "B", "0:T*P+1"],
    S: Float[Array, "B L"],
    P: Const,
):
    assert L == T * P
    for b in range(B):
        for j in range(n[b]):
            S[b, j] = sum(q[b, e] * K[page[b, j // P], j % P, e] for e in range(E))
""",
        {"P": 4, "T": 2},
    ),
    "alibi": (
        """\
def alibi(
    Q: Float[Array, "H M E"],
    K: Float[Array, "H N E"],
    slopes: Float[Array, "H"],
    S: Float[Array, "H M N"],
    cap: float,
):
    for h in range(H):
        for i in range(M):
            for j in range(min(i + 1, N)):
                t = 0.0
                for e in range(E):
                    t += Q[h, i, e] * K[h, j, e]
                t = cap * tanh(t / cap)
                S[h, i, j] = t + slopes[h] * (j - i)
""",
        {},
    ),
    "window": (
        """\
def window(x: Float[Array, "N"], W: int):
    y = np.empty(N)
    for i in range(N):
        m = -np.inf
        for j in range(max(0, i - W + 1), min(N, i + W)):
            m = max(m, x[j])
        y[i] = m
    return y
""",
        {},
    ),
    "dropout": (
        """\
def drop(x: Float[Array, "M N"], seed: Seed, p: float = 0.5):
    y = zeros((M, N))
    for i in range(M):
        for j in range(N):
            keep = uniform(seed, i, j) >= p
            y[i, j] = x[i, j] / (1 - p) if keep else 0.0
    return y
""",
        {},
    ),
    "argmax-scalar": (
        """\
def argmax(x):
    N = len(x)
    best, where_best = x[0], 0
    for j in range(1, N):
        if x[j] > best:
            best, where_best = x[j], j
    return best, where_best
""",
        {},
    ),
    "helper": (
        """\
def sigmoid(x):
    return 1.0 / (1.0 + exp(-x))

def silu(x):
    s = sigmoid(x)
    return x * s

def swiglu(x: Float[Array, "N"], g: Float[Array, "N"]):
    y = zeros(N)
    for i in range(N):
        y[i] = silu(g[i]) * x[i]
    return y
""",
        {},
    ),
    "rope": (
        """\
def rope(x: Float[Array, "T D"], cosv: Float[Array, "T D//2"], sinv: Float[Array, "T D//2"]):
    for t in range(T):
        for d in range(D // 2):
            a, b = x[t, 2 * d], x[t, 2 * d + 1]
            x[t, 2 * d] = a * cosv[t, d] - b * sinv[t, d]
            x[t, 2 * d + 1] = a * sinv[t, d] + b * cosv[t, d]
    return x
""",
        {"D": 4},
    ),
    "count-int": (
        """\
def f(x: Float[Array, "N"]):
    c = np.zeros(N, dtype=np.int64)
    for i in range(N):
        for j in range(N):
            if x[j] < x[i]:
                c[i] += 1
    return c
""",
        {},
    ),
    "sentinel": (
        """\
def f(x: Float[Array, "N"]):
    second = -1e30
    top = -1e30
    for i in range(N):
        if x[i] > top:
            second = top
            top = x[i]
        elif x[i] > second:
            second = x[i]
    return top, second
""",
        {},
    ),
    "sink": (
        """\
def f(S: Float[Array, "M N"], sink: Float[Array, "M"]):
    l = zeros(M)
    for i in range(M):
        m = sink[i]
        acc = 1.0
        for j in range(max(0, i - 2), min(i + 1, N)):
            n = max(m, S[i, j])
            acc = acc * exp(m - n) + exp(S[i, j] - n)
            m = n
        l[i] = m + log(acc)
    return l
""",
        {},
    ),
    "chunked": (
        """\
def f(x: Float[Array, "N"], C: Const):
    y = zeros(N)
    for c in range((N + C - 1) // C):
        s = 0.0
        for t in range(C):
            if c * C + t < N:
                s += x[c * C + t]
                y[c * C + t] = s
    return y
""",
        {"C": 3},
    ),
    "cu-segments": (
        """\
def f(x: Float[Array, "T D"], cu: Int[Array, "B+1", "0:T+1"], B: int):
    out = zeros((B, D))
    assert all(cu[b] <= cu[b + 1] for b in range(B))
    for b in range(B):
        for t in range(cu[b], cu[b + 1]):
            for d in range(D):
                out[b, d] += x[t, d]
        n = cu[b + 1] - cu[b]
        for d in range(D):
            out[b, d] = out[b, d] / max(n, 1)
    return out
""",
        {},
    ),
    "moe": (
        """\
def f(
    x: Float[Array, "T D"],
    e: Int[Array, "T K", "0:E"],
    w: Float[Array, "E D F"],
    g: Float[Array, "T K"],
):
    y = zeros((T, F))
    for t in range(T):
        for k in range(K):
            for f in range(F):
                for d in range(D):
                    y[t, f] += g[t, k] * x[t, d] * w[e[t, k], d, f]
    return y
""",
        {},
    ),
    "len2d": (
        """\
def f(A):
    for i in range(len(A)):
        for j in range(len(A[0])):
            A[i][j] += 1
""",
        {},
    ),
    "kwonly": (
        """\
def f(x, *, N, scale=2.0, causal: bool = True):
    for i in range(N):
        for j in range(N):
            if causal and j > i:
                x[i, j] = -inf
            else:
                x[i, j] = x[i, j] * scale
""",
        {},
    ),
    "aug-others": (
        """\
def f(x: Float[Array, "N"]):
    for i in range(N):
        x[i] **= 2
        x[i] //= 0.1
        x[i] %= 3
        x[i] -= -1
""",
        {},
    ),
}

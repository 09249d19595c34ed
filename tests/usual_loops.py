"""Listings as people have them in loop benchmark suites, with sizes where any will not do."""

LOOPS: dict[str, tuple[str, dict[str, float]]] = {
    "gemver": (
        """\
def kernel_gemver(n: int, alpha: float, beta: float, A, u1, v1, u2, v2, w, x, y, z):
    for i in range(n):
        for j in range(n):
            A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(n):
        for j in range(n):
            x[i] = x[i] + beta * A[j, i] * y[j]
    for i in range(n):
        x[i] = x[i] + z[i]
    for i in range(n):
        for j in range(n):
            w[i] = w[i] + alpha * A[i, j] * x[j]
    return w
""",
        {},
    ),
    "cholesky": (
        """\
def cholesky(N, A):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i][j] -= A[i][k] * A[j][k]
            A[i][j] /= A[j][j]
        for k in range(i):
            A[i][i] -= A[i][k] * A[i][k]
        A[i][i] = sqrt(abs(A[i][i]))
""",
        {},
    ),
    "durbin": (
        """\
def durbin(N, r, y):
    z = zeros(N)
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, N):
        beta = (1 - alpha * alpha) * beta
        summ = 0.0
        for i in range(k):
            summ += r[k - i - 1] * y[i]
        alpha = -(r[k] + summ) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
""",
        {},
    ),
    "floyd-min": (
        """\
def floyd_warshall(n, path):
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if path[i][k] + path[k][j] < path[i][j]:
                    path[i][j] = path[i][k] + path[k][j]
""",
        {},
    ),
    "nussinov": (
        """\
def nussinov(N, seq: Int[Array, "N"], table):
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < N:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1]
                        + (1 if seq[i] + seq[j] == 3 else 0))
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
""",
        {},
    ),
    "correlation": (
        """\
def correlation(M, N, float_n, data, corr, mean, stddev):
    eps = 0.1
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] /= float_n
    for j in range(M):
        stddev[j] = 0.0
        for i in range(N):
            stddev[j] += (data[i, j] - mean[j]) ** 2
        stddev[j] /= float_n
        stddev[j] = sqrt(stddev[j])
        stddev[j] = 1.0 if stddev[j] <= eps else stddev[j]
    for i in range(N):
        for j in range(M):
            data[i, j] -= mean[j]
            data[i, j] /= sqrt(float_n) * stddev[j]
    for i in range(M - 1):
        corr[i, i] = 1.0
        for j in range(i + 1, M):
            corr[i, j] = 0.0
            for k in range(N):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    corr[M - 1, M - 1] = 1.0
""",
        {},
    ),
    "adi": (
        """\
def adi(TSTEPS, N, u, v, p, q):
    DX = 1.0 / N
    DY = 1.0 / N
    DT = 1.0 / TSTEPS
    B1 = 2.0
    B2 = 1.0
    mul1 = B1 * DT / (DX * DX)
    mul2 = B2 * DT / (DY * DY)
    a = -mul1 / 2.0
    b = 1.0 + mul1
    c = a
    d = -mul2 / 2.0
    e = 1.0 + mul2
    f = d
    for t in range(1, TSTEPS + 1):
        for i in range(1, N - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, N - 1):
                p[i, j] = -c / (a * p[i, j - 1] + b)
                q[i, j] = (-d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i]
                    - f * u[j, i + 1] - a * q[i, j - 1]) / (a * p[i, j - 1] + b)
            v[N - 1, i] = 1.0
            for j in range(N - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
""",
        {},
    ),
    "fdtd": (
        """\
def fdtd_2d(TMAX, NX, NY, ex, ey, hz, _fict_):
    for t in range(TMAX):
        for j in range(NY):
            ey[0][j] = _fict_[t]
        for i in range(1, NX):
            for j in range(NY):
                ey[i][j] -= 0.5 * (hz[i][j] - hz[i-1][j])
        for i in range(NX):
            for j in range(1, NY):
                ex[i][j] -= 0.5 * (hz[i][j] - hz[i][j-1])
        for i in range(NX - 1):
            for j in range(NY - 1):
                hz[i][j] -= 0.7 * (ex[i][j+1] - ex[i][j] + ey[i+1][j] - ey[i][j])
""",
        {},
    ),
    "gramschmidt": (
        """\
def gramschmidt(m, n, A, R, Q):
    for k in range(n):
        nrm = 0.0
        for i in range(m):
            nrm += A[i, k] * A[i, k]
        R[k, k] = np.sqrt(nrm)
        for i in range(m):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, n):
            R[k, j] = 0.0
            for i in range(m):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(m):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]
""",
        {},
    ),
    "symm": (
        """\
def symm(M, N, alpha, beta, C, A, B):
    for i in range(M):
        for j in range(N):
            temp2 = 0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                temp2 += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * temp2
""",
        {},
    ),
    "trmm-rows": (
        """\
def trmm(alpha, A, B):
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            for k in range(i + 1, B.shape[0]):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] *= alpha
""",
        {},
    ),
    "chained": (
        """\
def band(A, N, lo, hi):
    for i in range(N):
        for j in range(N):
            if -lo <= i - j <= hi and not (i == j):
                A[i, j] = 1.0
            elif 0 < i < j < N - 1:
                A[i, j] = 2.0
            else:
                A[i, j] *= 0.5
""",
        {},
    ),
    "swap": (
        """\
def bubble(a, n):
    for i in range(n):
        for j in range(0, n - i - 1):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
""",
        {},
    ),
    "early2": (
        """\
def run(x, y, N):
    for i in range(N):
        for j in range(N):
            if j == 0:
                acc = 0.0
            acc = acc + x[i, j]
            if j == N - 1:
                y[i] = acc
""",
        {},
    ),
    "method": (
        """\
class Attention(nn.Module):
    def __init__(self, N, D):
        self.N = N
        self.D = D
        super().__init__()

    @property
    def scale(self):
        return self.D ** -0.5

    def forward(self, q, k, out):
        for i in range(self.N):
            for j in range(self.N):
                s = 0.0
                for d in range(self.D):
                    s += q[i, d] * k[j, d]
                out[i, j] = s * self.alpha
        return out
""",
        {},
    ),
    "bare-init": (
        """\
import numpy as np
N = 5
A = np.zeros((N, N))
for i in range(1, N):
    for j in range(N):
        A[i, j] = A[i - 1, j] + i * j
""",
        {},
    ),
    "step-tiled": (
        """\
def tiled(x, n):
    for ii in range(0, n, 4):
        for i in range(ii, min(ii + 4, n)):
            x[i] = x[i] + ii
""",
        {},
    ),
    "conv": (
        """\
def conv(x: Float[Array, "C H W"], w: Float[Array, "F C R S"]):
    y = np.zeros((F, H - R + 1, W - S + 1))
    for f in range(F):
        for i in range(H - R + 1):
            for j in range(W - S + 1):
                for c in range(C):
                    for r in range(R):
                        for s in range(S):
                            y[f, i, j] += x[c, i + r, j + s] * w[f, c, r, s]
    return y
""",
        {},
    ),
    "minmax3": (
        """\
def lev(a: Int[Array, "M"], b: Int[Array, "N"]):
    D = zeros((M + 1, N + 1))
    for i in range(M + 1):
        D[i, 0] = i
    for j in range(N + 1):
        D[0, j] = j
    for i in range(1, M + 1):
        for j in range(1, N + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + cost)
    return D
""",
        {},
    ),
    "welford": (
        """\
def welford(x: Float[Array, "N"]):
    mean = 0.0
    M2 = 0.0
    for i in range(N):
        delta = x[i] - mean
        mean += delta / (i + 1)
        M2 += delta * (x[i] - mean)
    var = M2 / N
    return mean, var
""",
        {},
    ),
    "knapsack": (
        """\
def knap(w: Int[Array, "N", "1:W"], v: Float[Array, "N"], W: int):
    T = zeros((N + 1, W + 1))
    for i in range(1, N + 1):
        for c in range(W + 1):
            T[i, c] = T[i - 1, c]
            if w[i - 1] <= c:
                T[i, c] = max(T[i, c], T[i - 1, c - w[i - 1]] + v[i - 1])
    return T
""",
        {},
    ),
}

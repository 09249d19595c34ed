# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def layernorm(X: Float[Array, "M N"], w: Float[Array, "N"], b: Float[Array, "N"], eps: float):
#         Y = zeros((M, N))
#         for i in range(0, M):
#             s = 0.0  # S1: an empty sum
#             for j in range(0, N):
#                 s = s + X[i, j]  # S2: Aggregation over j
#             mean = s / N  # S3: the mean of row i
#             t = 0.0  # S4: an empty sum
#             for j in range(0, N):
#                 t = t + (X[i, j] - mean) ** 2  # S5: Aggregation over j
#             r = 1.0 / sqrt(t / N + eps)  # S6: the reciprocal of the standard deviation
#             for j in range(0, N):
#                 Y[i, j] = (X[i, j] - mean) * r * w[j] + b[j]  # S7: no iteration needs another one
#         return Y
#
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. do a sum term by term (algebra: r[i] ** 3 * dr[i] * sum(t_term[i, j] for j in range(0, N)) /
#      N = 0)
#   4. do a sum term by term (algebra: -sum(dt_term[i, j] for j in range(0, N)) = -(r[i] * sum(dY[i,
#      j] * w[j] for j in range(0, N))))
#   5. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def layernorm_backward(
#         X: Float[Array, "M N"],
#         w: Float[Array, "N"],
#         b: Float[Array, "N"],
#         eps: float,
#         r_kept: Float32[Array, "M"],
#         mean_kept: Float32[Array, "M"],
#         dY: Float[Array, "M N"]
#     ):
#         dr = zeros(M, dtype=float32)
#         dmean_sum = zeros(M, dtype=float32)
#         dX = zeros((M, N))
#         dw = zeros(N)
#         db = zeros(N)
#         deps = 0.0
#         for i in range(0, M):
#             for j in range(0, N):
#                 t_term = X[i, j] - mean_kept[i]
#                 dr[i] = dr[i] + dY[i, j] * w[j] * t_term
#                 dmean_sum[i] = dmean_sum[i] + dY[i, j] * w[j]
#         for i in range(0, M):
#             for j in range(0, N):
#                 t_term_2 = X[i, j] - mean_kept[i]
#                 dt_term = r_kept[i] * (dY[i, j] * w[j] - t_term_2 * dr[i] * r_kept[i] ** 2 / N)
#                 dX[i, j] = dt_term - r_kept[i] * dmean_sum[i] / N
#         for j in range(0, N):
#             for i in range(0, M):
#                 t_term_3 = X[i, j] - mean_kept[i]
#                 dw[j] = dw[j] + dY[i, j] * t_term_3 * r_kept[i]
#                 db[j] = db[j] + dY[i, j]
#         for i in range(0, M):
#             deps = deps - 0.5 * dr[i] * r_kept[i] ** 3
#         return dX, dw, db, deps
#
# The steps from there to the forward kernels:
#   1. run i and j in parallel, s, mean, t and r private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def layernorm(X: Float[Array, "M N"], w: Float[Array, "N"], b: Float[Array, "N"], eps: float):
#         r_kept = zeros(M, dtype=float32)
#         mean_kept = zeros(M, dtype=float32)
#         Y = zeros((M, N))
#         for i in parallel(0, M):
#             private: (s, mean, t, r)
#             s = 0.0  # S1: an empty sum
#             for j in range(0, N):
#                 s = s + X[i, j]  # S2: Aggregation over j
#             mean = s / N  # S3: the mean of row i
#             mean_kept[i] = mean  # S8
#             t = 0.0  # S4: an empty sum
#             for j in range(0, N):
#                 t = t + (X[i, j] - mean) ** 2  # S5: Aggregation over j
#             r = 1.0 / sqrt(t / N + eps)  # S6: the reciprocal of the standard deviation
#             r_kept[i] = r  # S9
#             for j in parallel(0, N):
#                 Y[i, j] = (X[i, j] - mean) * r * w[j] + b[j]  # S7: no iteration needs another one
#         return Y, r_kept, mean_kept
#
# The steps from there to the backward kernels:
#   1. fuse(i@S2, i@S5)
#   2. run i and j in parallel, t_term, t_term_2, dt_term and t_term_3 private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def layernorm_backward(
#         X: Float[Array, "M N"],
#         w: Float[Array, "N"],
#         b: Float[Array, "N"],
#         eps: float,
#         r_kept: Float32[Array, "M"],
#         mean_kept: Float32[Array, "M"],
#         dY: Float[Array, "M N"]
#     ):
#         dr = zeros(M, dtype=float32)
#         dmean_sum = zeros(M, dtype=float32)
#         dX = zeros((M, N))
#         dw = zeros(N)
#         db = zeros(N)
#         deps = 0.0  # S1
#         for i in parallel(0, M):
#             private: (t_term, t_term_2, dt_term)
#             for j in range(0, N):
#                 t_term = X[i, j] - mean_kept[i]  # S2
#                 dr[i] = dr[i] + dY[i, j] * w[j] * t_term  # S3
#                 dmean_sum[i] = dmean_sum[i] + dY[i, j] * w[j]  # S4
#             for j in parallel(0, N):
#                 private: (t_term_2, dt_term)
#                 t_term_2 = X[i, j] - mean_kept[i]  # S5
#                 # S6
#                 dt_term = r_kept[i] * (dY[i, j] * w[j] - t_term_2 * dr[i] * r_kept[i] ** 2 / N)
#                 dX[i, j] = dt_term - r_kept[i] * dmean_sum[i] / N  # S7
#         for j in parallel(0, N):
#             private: t_term_3
#             for i in range(0, M):
#                 t_term_3 = X[i, j] - mean_kept[i]  # S8
#                 dw[j] = dw[j] + dY[i, j] * t_term_3 * r_kept[i]  # S9
#                 db[j] = db[j] + dY[i, j]  # S10
#         for i in range(0, M):
#             deps = deps - 0.5 * dr[i] * r_kept[i] ** 3  # S11
#         return dX, dw, db, deps
#
# Notes:
#   - Two passes over j stay: the terms of t are not separable
#   - Two passes over j stay: S7 writes a value for each j from t, which is known only after the
#     last one, through S6 → S7: a second pass is needed
#   - Two passes over j stay: S6 writes a value for each j from dr[i], which is known only after the
#     last one, through S3 → S6: a second pass is needed

import itertools
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl


@triton.jit
def _square(value):
    return value * value


@triton.jit
def _power(value, times: tl.constexpr):
    """A value to the power of a positive integer."""
    result = value
    for _ in tl.static_range(times - 1):
        result = result * value
    return result


class _Timed(triton.Config):
    """A configuration that is timed; Triton keeps times under this text, so for each GPU apart."""

    def __str__(self):
        return f"{super().__str__()}, on {torch.cuda.get_device_name()}"


class _Tuned:
    """A kernel in its fastest configuration, which is found once for sizes that are alike.

    Those are alike that have the same powers of two above them: so lengths may change at each call.
    """

    def __init__(self, kernel, configs, key, restored=(), fitting=None):
        self.kernel, self.restored, self.fitting = kernel, restored, fitting
        self.found, self.waiting, self.called = {}, (), None
        self.fastest = float("inf")
        self.tuner = triton.autotune(
            configs,
            key=key,
            restore_value=restored,
            prune_configs_by={"early_config_prune": self.pruned},
            do_bench=self.timed,
            cache_results=True,
        )(kernel)

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.run(grid, arguments, options)

    def run(self, grid, arguments, options):
        sizes = {**dict(zip(self.tuner.arg_names, arguments)), **options}
        like = (triton.next_power_of_2(sizes[key]) for key in self.tuner.keys)
        dtypes = (each.dtype for each in arguments if isinstance(each, torch.Tensor))
        like = (torch.cuda.current_device(), *like, *dtypes)
        if like in self.found:
            self.tuner.best_config = self.found[like]
            self.kernel[grid](*arguments, **options, **self.found[like].all_kwargs())
        else:
            # What is None is not put back between trials: Triton 3.6 would copy it.
            given = [name for name in self.restored if sizes[name] is not None]
            self.tuner.restore_value = given
            self.called = grid, arguments, options
            try:
                self.tuner[grid](*arguments, **options)
            finally:
                self.called, self.waiting = None, ()
            self.found[like] = self.tuner.best_config

    def pruned(self, configs, arguments, /, **sizes):
        """Return the configurations that fit, for Triton's autotuner."""
        if self.fitting is not None:
            configs = self.fitting(configs, sizes)
        self.waiting, self.fastest = configs, float("inf")
        return configs

    def timed(self, call, quantiles):
        """Return the times of a call; before the first one all are compiled, side by side."""
        if self.waiting:
            grid, arguments, options = self.called
            # What cannot be compiled is met again, and reported, where it is timed.
            with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
                for config in self.waiting:
                    self.kernel.warmup(*arguments, grid=grid, **options, **config.all_kwargs())
            self.waiting = ()
        benchmark = triton.runtime.driver.active.get_benchmarker()
        found = benchmark(call, warmup=5, rep=20, quantiles=quantiles)
        # What takes far longer than the fastest so far is not timed any further.
        if found[0] < 1.25 * self.fastest:
            found = benchmark(call, quantiles=quantiles)
            self.fastest = min(self.fastest, found[0])
        return found


@triton.jit
def layernorm_kernel(
    X_ptr, w_ptr, b_ptr, r_kept_ptr, mean_kept_ptr, Y_ptr,
    stride_X_i, stride_X_j,
    stride_w_j,
    stride_b_j,
    stride_r_kept_i,
    stride_mean_kept_i,
    stride_Y_i, stride_Y_j,
    eps,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads X (M, N), w (N,), b (N,).
    Writes r_kept (M,), mean_kept (M,), Y (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

    s = tl.zeros([BLOCK_I], tl.float32)  # S1
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        s = s + tl.sum(X_ij.to(tl.float32), axis=1)  # S2
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S2
        s = s + tl.sum(X_ij.to(tl.float32), axis=1)  # S2
    mean = s / tl.cast(N, tl.float32)  # S3
    tl.store(mean_kept_ptr + i * stride_mean_kept_i, mean, mask=i < M)  # S8
    t = tl.zeros([BLOCK_I], tl.float32)  # S4
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S5
        t = t + tl.sum(_square(X_ij.to(tl.float32) - mean[:, None]), axis=1)  # S5
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S5
        t = t + tl.sum(
            tl.where(j[None, :] < N, _square(X_ij.to(tl.float32) - mean[:, None]), 0.0), axis=1
        )  # S5
    r = 1.0 / tl.sqrt_rn(t / tl.cast(N, tl.float32) + eps)  # S6
    tl.store(r_kept_ptr + i * stride_r_kept_i, r, mask=i < M)  # S9
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S7
        w_j = tl.load(w_ptr + j * stride_w_j)  # S7
        b_j = tl.load(b_ptr + j * stride_b_j)  # S7
        tl.store(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            (X_ij.to(tl.float32) - mean[:, None]) * r[:, None] * w_j.to(tl.float32)[None, :]
            + b_j.to(tl.float32)[None, :],
            mask=i[:, None] < M
        )  # S7
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S7
        w_j = tl.load(w_ptr + j * stride_w_j, mask=j < N, other=0.0)  # S7
        b_j = tl.load(b_ptr + j * stride_b_j, mask=j < N, other=0.0)  # S7
        tl.store(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            (X_ij.to(tl.float32) - mean[:, None]) * r[:, None] * w_j.to(tl.float32)[None, :]
            + b_j.to(tl.float32)[None, :],
            mask=(i[:, None] < M) & (j[None, :] < N)
        )  # S7


def layernorm_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
layernorm_kernel_default = layernorm_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
layernorm_kernel_tuned = _Tuned(
    layernorm_kernel,
    [
        layernorm_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "N"],
)


@triton.jit
def layernorm_backward_dX_kernel(
    X_ptr, w_ptr, r_kept_ptr, mean_kept_ptr, dY_ptr, dr_ptr, dX_ptr,
    stride_X_i, stride_X_j,
    stride_w_j,
    stride_r_kept_i,
    stride_mean_kept_i,
    stride_dY_i, stride_dY_j,
    stride_dr_i,
    stride_dX_i, stride_dX_j,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads X (M, N), w (N,), r_kept (M,), mean_kept (M,), dY (M, N).
    Writes dr (M,), dX (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

    dr = tl.zeros([BLOCK_I], tl.float32)
    dmean_sum = tl.zeros([BLOCK_I], tl.float32)
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    mean_kept_i = tl.load(mean_kept_ptr + i * stride_mean_kept_i, mask=i < M, other=0.0)  # S2
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        t_term = X_ij.to(tl.float32) - mean_kept_i.to(tl.float32)[:, None]  # S2
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S3
        w_j = tl.load(w_ptr + j * stride_w_j)  # S3
        dr = dr + tl.sum(dY_ij.to(tl.float32) * w_j.to(tl.float32)[None, :] * t_term, axis=1)  # S3
        dmean_sum = dmean_sum + tl.sum(
            dY_ij.to(tl.float32) * w_j.to(tl.float32)[None, :], axis=1
        )  # S4
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S2
        t_term = X_ij.to(tl.float32) - mean_kept_i.to(tl.float32)[:, None]  # S2
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S3
        w_j = tl.load(w_ptr + j * stride_w_j, mask=j < N, other=0.0)  # S3
        dr = dr + tl.sum(dY_ij.to(tl.float32) * w_j.to(tl.float32)[None, :] * t_term, axis=1)  # S3
        dmean_sum = dmean_sum + tl.sum(
            dY_ij.to(tl.float32) * w_j.to(tl.float32)[None, :], axis=1
        )  # S4
    r_kept_i = tl.load(r_kept_ptr + i * stride_r_kept_i, mask=i < M, other=0.0)  # S6
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S5
        t_term_2 = X_ij.to(tl.float32) - mean_kept_i.to(tl.float32)[:, None]  # S5
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S6
        w_j = tl.load(w_ptr + j * stride_w_j)  # S6
        dt_term = r_kept_i.to(tl.float32)[:, None] * (
            dY_ij.to(tl.float32) * w_j.to(tl.float32)[None, :]
            - t_term_2 * dr[:, None] * _square(r_kept_i.to(tl.float32))[:, None] * (
                1.0 / tl.cast(N, tl.float32)
            )
        )  # S6
        if dX_ptr is not None:
            tl.store(
                dX_ptr + i[:, None] * stride_dX_i + j[None, :] * stride_dX_j,
                dt_term
                - (r_kept_i.to(tl.float32) * dmean_sum * (1.0 / tl.cast(N, tl.float32)))[:, None],
                mask=i[:, None] < M
            )  # S7
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S5
        t_term_2 = X_ij.to(tl.float32) - mean_kept_i.to(tl.float32)[:, None]  # S5
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S6
        w_j = tl.load(w_ptr + j * stride_w_j, mask=j < N, other=0.0)  # S6
        dt_term = r_kept_i.to(tl.float32)[:, None] * (
            dY_ij.to(tl.float32) * w_j.to(tl.float32)[None, :]
            - t_term_2 * dr[:, None] * _square(r_kept_i.to(tl.float32))[:, None] * (
                1.0 / tl.cast(N, tl.float32)
            )
        )  # S6
        if dX_ptr is not None:
            tl.store(
                dX_ptr + i[:, None] * stride_dX_i + j[None, :] * stride_dX_j,
                dt_term
                - (r_kept_i.to(tl.float32) * dmean_sum * (1.0 / tl.cast(N, tl.float32)))[:, None],
                mask=(i[:, None] < M) & (j[None, :] < N)
            )  # S7
    if dr_ptr is not None:
        tl.store(dr_ptr + i * stride_dr_i, dr, mask=i < M)  # S3


def layernorm_backward_dX_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
layernorm_backward_dX_kernel_default = layernorm_backward_dX_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
layernorm_backward_dX_kernel_tuned = _Tuned(
    layernorm_backward_dX_kernel,
    [
        layernorm_backward_dX_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "N"],
)


@triton.jit
def layernorm_backward_dw_db_kernel(
    X_ptr, r_kept_ptr, mean_kept_ptr, dY_ptr, dw_ptr, db_ptr,
    stride_X_i, stride_X_j,
    stride_r_kept_i,
    stride_mean_kept_i,
    stride_dY_i, stride_dY_j,
    stride_dw_j,
    stride_db_j,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr,
):
    """A program does BLOCK_J iterations of j.

    Reads X (M, N), r_kept (M,), mean_kept (M,), dY (M, N).
    Writes dw (N,), db (N,).
    """
    pid = tl.program_id(0).to(INDEX)
    j = pid * BLOCK_J + tl.arange(0, BLOCK_J)

    dw = tl.zeros([BLOCK_J], tl.float32)
    db = tl.zeros([BLOCK_J], tl.float32)
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[None, :] * stride_X_i + j[:, None] * stride_X_j,
            mask=j[:, None] < N,
            other=0.0
        )  # S8
        mean_kept_i = tl.load(mean_kept_ptr + i * stride_mean_kept_i)  # S8
        t_term_3 = X_ij.to(tl.float32) - mean_kept_i.to(tl.float32)[None, :]  # S8
        dY_ij = tl.load(
            dY_ptr + i[None, :] * stride_dY_i + j[:, None] * stride_dY_j,
            mask=j[:, None] < N,
            other=0.0
        )  # S9
        r_kept_i = tl.load(r_kept_ptr + i * stride_r_kept_i)  # S9
        dw = dw + tl.sum(
            dY_ij.to(tl.float32) * t_term_3 * r_kept_i.to(tl.float32)[None, :], axis=1
        )  # S9
        db = db + tl.sum(dY_ij.to(tl.float32), axis=1)  # S10
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[None, :] * stride_X_i + j[:, None] * stride_X_j,
            mask=(j[:, None] < N) & (i[None, :] < M),
            other=0.0
        )  # S8
        mean_kept_i = tl.load(mean_kept_ptr + i * stride_mean_kept_i, mask=i < M, other=0.0)  # S8
        t_term_3 = X_ij.to(tl.float32) - mean_kept_i.to(tl.float32)[None, :]  # S8
        dY_ij = tl.load(
            dY_ptr + i[None, :] * stride_dY_i + j[:, None] * stride_dY_j,
            mask=(j[:, None] < N) & (i[None, :] < M),
            other=0.0
        )  # S9
        r_kept_i = tl.load(r_kept_ptr + i * stride_r_kept_i, mask=i < M, other=0.0)  # S9
        dw = dw + tl.sum(
            dY_ij.to(tl.float32) * t_term_3 * r_kept_i.to(tl.float32)[None, :], axis=1
        )  # S9
        db = db + tl.sum(dY_ij.to(tl.float32), axis=1)  # S10
    if dw_ptr is not None:
        tl.store(dw_ptr + j * stride_dw_j, dw, mask=j < N)  # S9
    if db_ptr is not None:
        tl.store(db_ptr + j * stride_db_j, db, mask=j < N)  # S10


def layernorm_backward_dw_db_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
layernorm_backward_dw_db_kernel_default = layernorm_backward_dw_db_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
layernorm_backward_dw_db_kernel_tuned = _Tuned(
    layernorm_backward_dw_db_kernel,
    [
        layernorm_backward_dw_db_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "N"],
)


@triton.jit
def layernorm_backward_deps_kernel(
    r_kept_ptr, dr_ptr, deps_ptr,
    stride_r_kept_i,
    stride_dr_i,
    M,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    """A program does everything.

    Reads r_kept (M,), dr (M,).
    Writes deps (a number).
    """
    deps = tl.full([], 0.0, tl.float32)  # S1
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dr_i = tl.load(dr_ptr + i * stride_dr_i)  # S11
        r_kept_i = tl.load(r_kept_ptr + i * stride_r_kept_i)  # S11
        deps = deps - tl.sum(
            dr_i.to(tl.float32) * _power(r_kept_i.to(tl.float32), 3), axis=0
        ) * 0.5  # S11
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dr_i = tl.load(dr_ptr + i * stride_dr_i, mask=i < M, other=0.0)  # S11
        r_kept_i = tl.load(r_kept_ptr + i * stride_r_kept_i, mask=i < M, other=0.0)  # S11
        deps = deps - tl.sum(
            dr_i.to(tl.float32) * _power(r_kept_i.to(tl.float32), 3), axis=0
        ) * 0.5  # S11
    tl.store(deps_ptr, deps)  # S11


def layernorm_backward_deps_kernel_config(BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
layernorm_backward_deps_kernel_default = layernorm_backward_deps_kernel_config(512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
layernorm_backward_deps_kernel_tuned = _Tuned(
    layernorm_backward_deps_kernel,
    [
        layernorm_backward_deps_kernel_config(*row)
        for row in itertools.product((128, 512, 1024), (4, 8), (2,))
    ],
    key=["M"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(layernorm_kernel, triton.JITFunction)
_FLOAT = (torch.float16, torch.bfloat16, torch.float32)


def _check_tensors(*arguments):
    """Raise a ValueError unless every (name, tensor, dimensions, dtypes) is as it should be."""
    first, first_float = None, None
    for name, tensor, dimensions, dtypes in arguments:
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise ValueError(f"{name} should be a torch.Tensor, and is a {kind}")
        if tensor.ndim != dimensions:
            shape = tuple(tensor.shape)
            raise ValueError(f"{name} should have {dimensions} dimensions, and has shape {shape}")
        if tensor.dtype not in dtypes:
            allowed = " or ".join(str(dtype) for dtype in dtypes)
            raise ValueError(f"{name} should be {allowed}, and is {tensor.dtype}: convert it")
        if tensor.layout != torch.strided:
            raise ValueError(f"{name} should be dense, and is {tensor.layout}: call to_dense()")
        if tensor.is_neg():
            raise ValueError(f"{name} is a view of what it negates: call resolve_neg()")
        if _INTERPRETED and tensor.dtype == torch.bfloat16:
            raise ValueError(
                f"{name} is torch.bfloat16, which Triton's interpreter gets wrong: convert it"
            )
        first = first or (name, tensor.device)
        if tensor.device != first[1]:
            places = f"{first[0]} is on {first[1]}, {name} on {tensor.device}"
            raise ValueError(f"tensors should be on one device: {places}; move one of them")
        if len(dtypes) > 1 and tensor.is_floating_point():
            first_float = first_float or (name, tensor.dtype)
            if tensor.dtype != first_float[1]:
                types = f"{first_float[0]} is {first_float[1]}, {name} {tensor.dtype}"
                raise ValueError(f"float tensors should have one dtype: {types}; convert one")
    if first and first[1].type != "cuda" and not (_INTERPRETED and first[1].type == "cpu"):
        raise ValueError(
            f"{first[0]} is on {first[1]}, and kernels run on a GPU: move the tensors there, or set"
            " TRITON_INTERPRET=1 before triton is first imported to run on the CPU"
        )


def _check_shape(name, tensor, expected, text):
    """Raise a ValueError unless a tensor has the expected shape; None is any extent."""
    shape = tuple(tensor.shape)
    if any(want is not None and want != got for want, got in zip(expected, shape)):
        wanted = f"{expected}, that is {text}"
        raise ValueError(f"{name} should have the shape {wanted}; it has {shape}")


def _real(name, value):
    """Return a value as a float, or raise a ValueError where it is no real number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} should be a real number, and is {value!r}") from None


def _wanted(wanted, gradients):
    """Return the names of the gradients that are asked for as a set."""
    if wanted is None:
        return set(gradients)
    if isinstance(wanted, str) or not wanted or not set(wanted) <= set(gradients):
        raise ValueError(f"wanted should name some of {', '.join(gradients)}, and is {wanted!r}")
    return set(wanted)


def _given(*tensors):
    """Return the tensors that are not None."""
    return [tensor for tensor in tensors if tensor is not None]


def _strides(tensor, *axes):
    """Return strides of a tensor; where it is None, zeros, which nothing looks at."""
    return [0 if tensor is None else tensor.stride(axis) for axis in axes]


def _free(name):
    """Return a name that no operator of torch has: a copy of this module may have been loaded."""
    found, copy = name, 1
    while hasattr(torch.ops.looptrans, found):
        copy += 1
        found = f"{name}_{copy}"
    return f"looptrans::{found}"


def _like(tensor):
    """Return what `_unread` and `_zeros` make a tensor of."""
    return tensor.shape, tensor.dtype, tensor.device


def _unread(shape, dtype, device):
    """Return a tensor whose contents nothing looks at, in the memory of one element."""
    return torch.empty((), dtype=dtype, device=device).expand(shape)


def _zeros(shape, dtype, device):
    """Return zeros in the memory of one element."""
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


def _number(name, value):
    """Return a number as a float, also where it is a tensor that asks for a gradient."""
    return _real(name, value.detach() if isinstance(value, torch.Tensor) else value)


def _handle(value):
    """Return a number that may receive a gradient; None where it is no tensor."""
    return value if isinstance(value, torch.Tensor) else None


def _index_type(*arguments):
    """Return tl.int64 where an offset in a tensor, or a sum with a number, may not fit 32 bits."""
    for tensor in arguments:
        if isinstance(tensor, int):
            if abs(tensor) >= 2**30:
                return tl.int64
            continue
        pairs = zip(tensor.shape, tensor.stride())
        reach = sum((size - 1) * abs(stride) for size, stride in pairs)
        # The last block may reach beyond the end, masked, by its own size.
        if max(reach, tensor.numel()) >= 2**31 - 2**16:
            return tl.int64
    return tl.int32


def layernorm_forward(X, w, b, eps, *, tune=True):
    """Run layernorm, and return what its gradients need besides.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        w: (N,), float16, bfloat16 or float32, any strides.
        b: (N,), float16, bfloat16 or float32, any strides.
        eps: A real number.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        Y (M, N), r_kept (M,) in float32, mean_kept (M,) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT), ("w", w, 1, _FLOAT), ("b", b, 1, _FLOAT))
    eps = _real("eps", eps)
    M, N = X.shape
    _check_shape("w", w, (N,), "(N,) with N = X.shape[1]")
    _check_shape("b", b, (N,), "(N,) with N = X.shape[1]")
    r_kept = torch.empty((M,), dtype=torch.float32, device=X.device)
    mean_kept = torch.empty((M,), dtype=torch.float32, device=X.device)
    Y = torch.empty((M, N), dtype=X.dtype, device=X.device)
    index = _index_type(X, w, b, r_kept, mean_kept, Y)

    if _INTERPRETED or not tune:
        run = layernorm_kernel
        blocks = layernorm_kernel_default.all_kwargs()
    else:
        run = layernorm_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, w, b, r_kept, mean_kept, Y,
                *X.stride(),
                *w.stride(),
                *b.stride(),
                *r_kept.stride(),
                *mean_kept.stride(),
                *Y.stride(),
                eps,
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return Y, r_kept, mean_kept


def layernorm_backward(X, w, b, eps, r_kept, mean_kept, dY, *, wanted=None, tune=True):
    """Return the gradients of layernorm.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        w: (N,), float16, bfloat16 or float32, any strides.
        b: (N,), float16, bfloat16 or float32, any strides.
        eps: A real number.
        r_kept: (M,), float32, any strides.
        mean_kept: (M,), float32, any strides.
        dY: (M, N), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dX (M, N), dw (N,), db (N,), deps (a number) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("X", X, 2, _FLOAT), ("w", w, 1, _FLOAT), ("b", b, 1, _FLOAT),
        ("r_kept", r_kept, 1, (torch.float32,)), ("mean_kept", mean_kept, 1, (torch.float32,)),
        ("dY", dY, 2, _FLOAT)
    )
    eps = _real("eps", eps)
    M, N = X.shape
    _check_shape("w", w, (N,), "(N,) with N = X.shape[1]")
    _check_shape("b", b, (N,), "(N,) with N = X.shape[1]")
    _check_shape("r_kept", r_kept, (M,), "(M,) with M = X.shape[0]")
    _check_shape("mean_kept", mean_kept, (M,), "(M,) with M = X.shape[0]")
    _check_shape("dY", dY, (M, N), "(M, N) with M = X.shape[0] and N = X.shape[1]")
    wanted = _wanted(wanted, ("dX", "dw", "db", "deps"))
    dr = None
    if "deps" in wanted:
        dr = torch.empty((M,), dtype=torch.float32, device=X.device)
    dX = None
    if "dX" in wanted:
        dX = torch.empty((M, N), dtype=X.dtype, device=X.device)
    dw = None
    if "dw" in wanted:
        dw = torch.empty((N,), dtype=X.dtype, device=X.device)
    db = None
    if "db" in wanted:
        db = torch.empty((N,), dtype=X.dtype, device=X.device)
    deps = None
    if "deps" in wanted:
        deps = torch.empty((), dtype=torch.float32, device=X.device)
    index = _index_type(*_given(X, w, b, r_kept, mean_kept, dY, dr, dX, dw, db, deps))

    if _INTERPRETED or not tune:
        run = layernorm_backward_dX_kernel
        blocks = layernorm_backward_dX_kernel_default.all_kwargs()
    else:
        run = layernorm_backward_dX_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0 and wanted & {"dX", "deps"}:
        with torch.cuda.device_of(X):
            run[grid](
                X, w, r_kept, mean_kept, dY, dr, dX,
                *X.stride(),
                *w.stride(),
                *r_kept.stride(),
                *mean_kept.stride(),
                *dY.stride(),
                *_strides(dr, 0),
                *_strides(dX, 0, 1),
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = layernorm_backward_dw_db_kernel
        blocks = layernorm_backward_dw_db_kernel_default.all_kwargs()
    else:
        run = layernorm_backward_dw_db_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_J"]),)

    if N > 0 and wanted & {"dw", "db"}:
        with torch.cuda.device_of(X):
            run[grid](
                X, r_kept, mean_kept, dY, dw, db,
                *X.stride(),
                *r_kept.stride(),
                *mean_kept.stride(),
                *dY.stride(),
                *_strides(dw, 0),
                *_strides(db, 0),
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = layernorm_backward_deps_kernel
        blocks = layernorm_backward_deps_kernel_default.all_kwargs()
    else:
        run = layernorm_backward_deps_kernel_tuned
        blocks = {}
    if "deps" in wanted:
        with torch.cuda.device_of(X):
            run[(1,)](
                r_kept, dr, deps,
                *r_kept.stride(),
                *dr.stride(),
                M,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dX, dw, db, deps


@torch.library.custom_op(_free("layernorm_forward_f4517d8b"), mutates_args=())
def _layernorm_forward_operator(
    X: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float, eps_tensor: torch.Tensor | None,
    tune: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layernorm_forward(X, w, b, eps, tune=tune)


@_layernorm_forward_operator.register_fake
def _(X, w, b, eps, eps_tensor, tune):
    M = X.shape[0]
    N = X.shape[1]
    return (
        torch.empty((M, N), dtype=X.dtype, device=X.device),
        torch.empty((M,), dtype=torch.float32, device=X.device),
        torch.empty((M,), dtype=torch.float32, device=X.device),
    )


@torch.library.custom_op(_free("layernorm_backward_f4517d8b"), mutates_args=())
def _layernorm_backward_operator(
    X: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float, r_kept: torch.Tensor,
    mean_kept: torch.Tensor, dY: torch.Tensor, wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = layernorm_backward(
        X,
        w,
        b,
        eps,
        r_kept,
        mean_kept,
        dY,
        wanted=[name for name, each in zip(("dX", "dw", "db", "deps"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_layernorm_backward_operator.register_fake
def _(X, w, b, eps, r_kept, mean_kept, dY, wanted, tune):
    M = X.shape[0]
    N = X.shape[1]
    found = (
        torch.empty((M, N), dtype=X.dtype, device=X.device),
        torch.empty((N,), dtype=X.dtype, device=X.device),
        torch.empty((N,), dtype=X.dtype, device=X.device),
        torch.empty((), dtype=torch.float32, device=X.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _layernorm_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    X, w, b, eps, eps_tensor, tune = inputs
    Y, r_kept, mean_kept = output
    ctx.save_for_backward(X, w, r_kept, mean_kept, eps_tensor)
    ctx.numbers = eps, tune
    ctx.like = _like(b), _like(Y)
    ctx.mark_non_differentiable(r_kept, mean_kept)
    ctx.set_materialize_grads(False)


def _layernorm_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dY, _, _ = found
    X, w, r_kept, mean_kept, eps_tensor = ctx.saved_tensors
    eps, tune = ctx.numbers
    b_like, Y_like = ctx.like
    b = _unread(*b_like)
    if dY is None:
        dY = _zeros(*Y_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2], needed[4]]
    found = iter(_layernorm_backward_operator(X, w, b, eps, r_kept, mean_kept, dY, wanted, tune))
    dX, dw, db, deps = (next(found) if each else None for each in wanted)
    if deps is not None:
        deps = deps.to(eps_tensor).reshape(eps_tensor.shape)
    return dX, dw, db, None, deps, None


def _layernorm_second(ctx, *found):
    raise RuntimeError(
        "layernorm has no second derivative: its backward pass is derived once. Call backward "
        "without create_graph=True"
    )


_layernorm_forward_operator.register_autograd(_layernorm_gradients, setup_context=_layernorm_keep)
_layernorm_backward_operator.register_autograd(_layernorm_second)


def layernorm(X, w, b, eps, *, tune=True):
    """Each row shifted to mean 0 and scaled to variance 1, then a weight and a bias for each
    column. Differentiable: gradients come from layernorm_backward.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        w: (N,), float16, bfloat16 or float32, any strides.
        b: (N,), float16, bfloat16 or float32, any strides.
        eps: A real number.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        Y (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    Y, _, _ = _layernorm_forward_operator(X, w, b, _number("eps", eps), _handle(eps), tune)
    return Y

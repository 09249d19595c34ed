# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def linear_cross_entropy(
#         X: Float[Array, "N F"], W: Float[Array, "V F"], y: Int[Array, "N", "0:V"]
#     ):
#         assert F > 512
#         loss = zeros(N)
#         for n in range(0, N):
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S2: an empty sum
#             own = 0.0  # S3: an empty sum
#             for v in range(0, V):
#                 s = sum(X[n, f] * W[v, f] for f in range(0, F))  # S4: the logit of a label
#                 m_new = max(m, s)  # S5: the maximum so far
#                 l = l * exp(m - m_new) + exp(s - m_new)  # S6: Aggregation over v
#                 m = m_new  # S7: kept for the next one
#                 own = own + (s if v == y[n] else 0.0)  # S8: Aggregation over v
#             loss[n] = m + log(l) - own  # S9: log-sum-exp minus the logit of the label
#         return loss
#
# The steps from there to its backward pass, with what each leans on:
#   1. closed form of v: m = max_v(sum(X[n, f] * W[v, f] for f in range(0, F))); l =
#      sum_v(exp(sum(X[n, f] * W[v, f] for f in range(0, F)) - m)); own = sum_v(sum(X[n, f] * W[v,
#      f] for f in range(0, F)) if v == y[n] else 0.0) (algebra: one iteration: s . unit(x) =
#      step(s, x); algebra: continuation: s . (b . unit(x)) = step(s . b, x); algebra:
#      associativity: (a . b) . d = a . (b . d); algebra: no iteration: ⊥ . b = b, a . ⊥ = a, ⊥ . ⊥
#      = ⊥; algebra: first iteration: step(⊥, x) = unit(x); algebra: signs: unit(x) and a . b have
#      the signs they are said to have; algebra: coordinates: phi(step(s, x)) = phi(s) + h(x), and
#      phi can be undone; algebra: closed form: after all iterations phi(s) is what it was at first
#      and every h(x), joined)
#   2. define every array once (storage: every read gets the value that was written last above it)
#   3. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   4. dm vanishes (algebra: dm = 0)
#   5. work P out from lse: keep lse = m[n] + log(l[n]) for each sum (algebra: P[n, v] = exp(s[n, v]
#      - m[n]) / l[n] = exp(s[n, v] - lse[n]))
#   6. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def linear_cross_entropy_backward(
#         X: Float[Array, "N F"],
#         W: Float[Array, "V F"],
#         y: Int[Array, "N", "0:V"],
#         lse: Float32[Array, "N"],
#         dloss: Float[Array, "N"]
#     ):
#         assert F > 512
#         ds = zeros((N, V), dtype=float32)
#         dX = zeros((N, F))
#         dW = zeros((V, F))
#         for n in range(0, N):
#             for v in range(0, V):
#                 s = sum(X[n, f] * W[v, f] for f in range(0, F))
#                 P = exp(s - lse[n])
#                 ds[n, v] = dloss[n] * (P - (1.0 if v == y[n] else 0.0))
#         for n in range(0, N):
#             for f in range(0, F):
#                 for v in range(0, V):
#                     dX[n, f] = dX[n, f] + ds[n, v] * W[v, f]
#         for v in range(0, V):
#             for f in range(0, F):
#                 for n in range(0, N):
#                     dW[v, f] = dW[v, f] + ds[n, v] * X[n, f]
#         return dX, dW
#
# The steps from there to the forward kernels:
#   1. guard the empty prefix: nothing moves before m does
#   2. write the sum of S4 as a loop
#   3. run n in parallel, m, l, own, s and m_nv private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def linear_cross_entropy(
#         X: Float[Array, "N F"], W: Float[Array, "V F"], y: Int[Array, "N", "0:V"]
#     ):
#         assert F > 512
#         lse = zeros(N, dtype=float32)
#         loss = zeros(N)
#         for n in parallel(0, N):
#             private: (m, l, own, s, m_nv)
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S2: an empty sum
#             own = 0.0  # S3: an empty sum
#             for v in range(0, V):
#                 s = 0.0  # S11
#                 for f in range(0, F):
#                     s = s + X[n, f] * W[v, f]  # S4: the logit of a label
#                 m_nv = max(m, s)  # S7
#                 l = l * exp(m - m_nv) + exp(s - m_nv) if m_nv > -inf else l  # S6
#                 own = own + (s if v == y[n] else 0.0)  # S8
#                 m = m_nv  # S5
#             lse[n] = m + log(l)  # S10
#             loss[n] = m + log(l) - own  # S9: log-sum-exp minus the logit of the label
#         return loss, lse
#
# The steps from there to the backward kernels:
#   1. write the sum of S1 as a loop
#   2. run n, v and f in parallel, s and P private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def linear_cross_entropy_backward(
#         X: Float[Array, "N F"],
#         W: Float[Array, "V F"],
#         y: Int[Array, "N", "0:V"],
#         lse: Float32[Array, "N"],
#         dloss: Float[Array, "N"]
#     ):
#         assert F > 512
#         ds = zeros((N, V), dtype=float32)
#         dX = zeros((N, F))
#         dW = zeros((V, F))
#         for n in parallel(0, N):
#             private: (s, P)
#             for v in parallel(0, V):
#                 private: (s, P)
#                 s = 0.0  # S6
#                 for f in range(0, F):
#                     s = s + X[n, f] * W[v, f]  # S1
#                 P = exp(s - lse[n])  # S2
#                 ds[n, v] = dloss[n] * (P - (1.0 if v == y[n] else 0.0))  # S3
#         for n in parallel(0, N):
#             for f in parallel(0, F):
#                 for v in range(0, V):
#                     dX[n, f] = dX[n, f] + ds[n, v] * W[v, f]  # S4
#         for v in parallel(0, V):
#             for f in parallel(0, F):
#                 for n in range(0, N):
#                     dW[v, f] = dW[v, f] + ds[n, v] * X[n, f]  # S5
#         return dX, dW

# ruff: noqa: E741

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import torch
import triton
import triton.language as tl


@triton.jit
def _hidden_zeros(rows: tl.constexpr, columns: tl.constexpr, number: tl.constexpr, size):
    """Zeros that are no constants to a compiler: it does not know that no size is negative.

    Nor that they are equal, and so one number: each has a place of its own, in steps of 16, which
    may be known to divide the size.
    """
    place = (number * rows + tl.arange(0, rows)[:, None]) * columns + tl.arange(0, columns)[None, :]
    return tl.where(place * 16 < -size, 1.0, 0.0)


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


class _Described(_Tuned):
    """A kernel that is also tried with blocks that the GPU copies by itself, where it can."""

    def __init__(self, kernel, configs, key, described, **options):
        super().__init__(kernel, configs, key, **options)
        loaded = [config for config in configs if not config.kwargs["DESCRIBED"]]
        self.described, self.loaded = described, _Tuned(kernel, loaded, key, **options)

    def run(self, grid, arguments, options):
        given = dict(zip(self.tuner.arg_names, arguments))
        if all(_is_copied(given[name]) for name in self.described):
            # The caller's own allocator for Triton stays what it is.
            copy_context().run(self.copied, grid, arguments, options)
        else:
            self.loaded.run(grid, arguments, options)

    def copied(self, grid, arguments, options):
        triton.set_allocator(_scratch)
        super().run(grid, arguments, options)


def _is_copied(tensor):
    """Tell whether the GPU, Hopper or later, can copy blocks of a tensor by itself."""
    if torch.version.hip or torch.cuda.get_device_capability(tensor.device)[0] < 9:
        return False
    if max(tensor.shape) >= 2**31:
        return False
    *outer, last = tensor.stride()
    steps = (tensor.data_ptr(), *(stride * tensor.element_size() for stride in outer))
    return last == 1 and all(step > 0 and step % 16 == 0 for step in steps)


def _scratch(size, alignment, stream):
    """Return memory in which a program tells the GPU of arrays; Triton asks for it."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _fitted(config, footprint, width, sizes, device, most=144):
    """Return a configuration with fewer stages, then smaller blocks, until it fits a GPU.

    It fits where a program has room for its blocks, by an estimate, and a thread holds at most so
    many of their numbers.
    """
    if _INTERPRETED:
        return config
    driver = triton.runtime.driver.active
    room = driver.utils.get_device_properties(device)["max_shared_mem"] - 4096
    most *= driver.get_current_target().warp_size * config.num_warps
    while True:
        shared, held = footprint(width, **{**sizes, **config.all_kwargs()})
        blocks, stages = dict(config.kwargs), config.num_stages
        largest = max(blocks, key=blocks.get)
        if shared <= room and held <= most:
            return config
        if held <= most and stages > 1:
            stages -= 1
        elif blocks[largest] > 16:
            blocks[largest] //= 2
        else:
            return config
        config = triton.Config(blocks, num_warps=config.num_warps, num_stages=stages)


def _fitting(footprint, width):
    """Return what leaves out the configurations that do not fit a GPU."""

    def fitting(configs, sizes):
        where = (footprint, width, sizes, torch.cuda.current_device())
        # What is timed may hold more than what is not: the times tell.
        kept = [config for config in configs if _fitted(config, *where, 192) is config]
        return kept or [_fitted(configs[0], *where)]

    return fitting


@triton.jit
def linear_cross_entropy_kernel(
    X_ptr, W_ptr, y_ptr, lse_ptr, loss_ptr,
    stride_X_n, stride_X_f,
    stride_W_v, stride_W_f,
    stride_y_n,
    stride_lse_n,
    stride_loss_n,
    N, F, V,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_F: tl.constexpr,
):
    """A program does BLOCK_N iterations of n.

    Reads X (N, F), W (V, F), y (N,).
    Writes lse (N,), loss (N,).
    """
    pid = tl.program_id(0).to(INDEX)
    n = pid * BLOCK_N + tl.arange(0, BLOCK_N)

    m = tl.full([BLOCK_N], float("-inf"), tl.float32)  # S1
    l = tl.zeros([BLOCK_N], tl.float32)  # S2
    own = tl.zeros([BLOCK_N], tl.float32)  # S3
    v_full = V // BLOCK_V * BLOCK_V  # blocks before this one are full
    y_n = tl.load(y_ptr + n * stride_y_n, mask=n < N, other=0)  # S8
    # Full blocks.
    for v_first in range(0, v_full, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        s = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)  # S11
        f_full = tl.cast(F // BLOCK_F * BLOCK_F, INDEX)  # blocks before this one are full
        # What is read as it would be in a block that begins at 0.
        f_at = tl.arange(0, BLOCK_F).to(INDEX)
        W_at = W_ptr + v[:, None] * stride_W_v + f_at[None, :] * stride_W_f
        # Full blocks.
        for f_first in range(0, f_full, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=n[:, None] < N,
                other=0.0
            )  # S4
            W_vf = tl.load(W_at + tl.cast(f_first, INDEX) * stride_W_f)  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        # The last, partial block.
        for f_first in range(f_full, F, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=(n[:, None] < N) & (f[None, :] < F),
                other=0.0
            )  # S4
            W_vf = tl.load(
                W_at + tl.cast(f_first, INDEX) * stride_W_f, mask=f[None, :] < F, other=0.0
            )  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        m_nv = tl.maximum(m, tl.max(s, axis=1))  # S7
        m_nv_finite = tl.where(m_nv > float("-inf"), m_nv, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_nv_finite) + tl.sum(tl.exp(s - m_nv_finite[:, None]), axis=1)  # S6
        own = own + tl.sum(
            tl.where(tl.arange(0, BLOCK_V)[None, :] == y_n[:, None] - v_first, s, 0.0), axis=1
        )  # S8
        m = m_nv  # S5
    # The last, partial block.
    for v_first in range(v_full, V, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        s = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)  # S11
        f_full = tl.cast(F // BLOCK_F * BLOCK_F, INDEX)  # blocks before this one are full
        # What is read as it would be in a block that begins at 0.
        f_at = tl.arange(0, BLOCK_F).to(INDEX)
        W_at = W_ptr + v[:, None] * stride_W_v + f_at[None, :] * stride_W_f
        # Full blocks.
        for f_first in range(0, f_full, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=n[:, None] < N,
                other=0.0
            )  # S4
            W_vf = tl.load(
                W_at + tl.cast(f_first, INDEX) * stride_W_f, mask=v[:, None] < V, other=0.0
            )  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        # The last, partial block.
        for f_first in range(f_full, F, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=(n[:, None] < N) & (f[None, :] < F),
                other=0.0
            )  # S4
            W_vf = tl.load(
                W_at + tl.cast(f_first, INDEX) * stride_W_f,
                mask=(v[:, None] < V) & (f[None, :] < F),
                other=0.0
            )  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        s = tl.where(v[None, :] < V, s, float("-inf"))  # outside: the least there is
        m_nv = tl.maximum(m, tl.max(s, axis=1))  # S7
        m_nv_finite = tl.where(m_nv > float("-inf"), m_nv, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_nv_finite) + tl.sum(tl.exp(s - m_nv_finite[:, None]), axis=1)  # S6
        own = own + tl.sum(
            tl.where(
                (v[None, :] < V) & (tl.arange(0, BLOCK_V)[None, :] == y_n[:, None] - v_first),
                s,
                0.0
            ),
            axis=1
        )  # S8
        m = m_nv  # S5
    log_l = tl.log(l)  # S10
    tl.store(lse_ptr + n * stride_lse_n, m + log_l, mask=n < N)  # S10
    tl.store(loss_ptr + n * stride_loss_n, m + log_l - own, mask=n < N)  # S9


def linear_cross_entropy_kernel_config(BLOCK_N, BLOCK_V, BLOCK_F, num_warps, num_stages):
    blocks = {"BLOCK_N": BLOCK_N, "BLOCK_V": BLOCK_V, "BLOCK_F": BLOCK_F}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def linear_cross_entropy_kernel_footprint(width, /, num_stages, BLOCK_N, BLOCK_F, BLOCK_V, **_):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (BLOCK_N * BLOCK_F + BLOCK_V * BLOCK_F)
    held = BLOCK_N * BLOCK_V
    return shared, held


# Used where nothing is timed, by the bytes of an element.
linear_cross_entropy_kernel_default = {
    2: linear_cross_entropy_kernel_config(128, 64, 64, 8, 3),
    4: linear_cross_entropy_kernel_config(32, 32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
linear_cross_entropy_kernel_tuned = {
    2: _Tuned(
        linear_cross_entropy_kernel,
        [
            linear_cross_entropy_kernel_config(*row)
            for row in [
                (128, 64, 64, 8, 3), (128, 32, 32, 8, 2), (128, 32, 32, 8, 3), (128, 64, 64, 8, 2),
                (128, 128, 64, 8, 2), (128, 128, 64, 8, 3), (64, 32, 32, 4, 2), (64, 32, 32, 4, 3),
                (64, 64, 64, 4, 2), (64, 64, 64, 4, 3), (64, 128, 64, 4, 2), (64, 128, 64, 4, 3),
                (128, 32, 32, 4, 2), (128, 32, 32, 4, 3), (128, 64, 64, 4, 2), (128, 64, 64, 4, 3),
                (128, 128, 64, 4, 2), (128, 128, 64, 4, 3),
            ]
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_kernel_footprint, 2),
    ),
    4: _Tuned(
        linear_cross_entropy_kernel,
        [
            linear_cross_entropy_kernel_config(*row)
            for row in [
                (32, 32, 32, 8, 1), (32, 16, 16, 4, 1), (32, 16, 16, 4, 2), (32, 32, 32, 4, 1),
                (32, 32, 32, 4, 2), (32, 64, 64, 4, 1), (32, 64, 64, 4, 2), (32, 16, 16, 8, 1),
                (32, 16, 16, 8, 2), (32, 32, 32, 8, 2), (32, 64, 64, 8, 1), (32, 64, 64, 8, 2),
                (64, 16, 16, 8, 1), (64, 16, 16, 8, 2), (64, 32, 32, 8, 1), (64, 32, 32, 8, 2),
                (64, 64, 64, 8, 1), (64, 64, 64, 8, 2),
            ]
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_kernel_footprint, 4),
    ),
}


@triton.jit
def linear_cross_entropy_backward_ds_kernel(
    X_ptr, W_ptr, y_ptr, lse_ptr, dloss_ptr, ds_ptr,
    stride_X_n, stride_X_f,
    stride_W_v, stride_W_f,
    stride_y_n,
    stride_lse_n,
    stride_dloss_n,
    stride_ds_n, stride_ds_v,
    N, F, V,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_F: tl.constexpr,
):
    """A program does BLOCK_N iterations of n by BLOCK_V iterations of v.

    Reads X (N, F), W (V, F), y (N,), lse (N,), dloss (N,).
    Writes ds (N, V).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_n = tl.cdiv(N, BLOCK_N)
    blocks_v = tl.cdiv(V, BLOCK_V)
    # Blocks in groups, so that neighbouring programs read the same rows and columns.
    block_n, block_v = tl.swizzle2d(pid // blocks_v, pid % blocks_v, blocks_n, blocks_v, 8)
    n = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    v = block_v * BLOCK_V + tl.arange(0, BLOCK_V)

    s = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)  # S6
    f_full = F // BLOCK_F * BLOCK_F  # blocks before this one are full
    # Full blocks.
    for f_first in range(0, f_full, BLOCK_F):
        f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
        X_nf = tl.load(
            X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
            mask=n[:, None] < N,
            other=0.0
        )  # S1
        W_vf = tl.load(
            W_ptr + v[:, None] * stride_W_v + f[None, :] * stride_W_f,
            mask=v[:, None] < V,
            other=0.0
        )  # S1
        s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S1
    # The last, partial block.
    for f_first in range(f_full, F, BLOCK_F):
        f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
        X_nf = tl.load(
            X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
            mask=(n[:, None] < N) & (f[None, :] < F),
            other=0.0
        )  # S1
        W_vf = tl.load(
            W_ptr + v[:, None] * stride_W_v + f[None, :] * stride_W_f,
            mask=(v[:, None] < V) & (f[None, :] < F),
            other=0.0
        )  # S1
        s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S1
    lse_n = tl.load(lse_ptr + n * stride_lse_n, mask=n < N, other=0.0)  # S2
    P = tl.exp(s - lse_n.to(tl.float32)[:, None])  # S2
    dloss_n = tl.load(dloss_ptr + n * stride_dloss_n, mask=n < N, other=0.0)  # S3
    y_n = tl.load(y_ptr + n * stride_y_n, mask=n < N, other=0)  # S3
    tl.store(
        ds_ptr + n[:, None] * stride_ds_n + v[None, :] * stride_ds_v,
        dloss_n.to(tl.float32)[:, None] * (P - tl.where(v[None, :] == y_n[:, None], 1.0, 0.0)),
        mask=(n[:, None] < N) & (v[None, :] < V)
    )  # S3


def linear_cross_entropy_backward_ds_kernel_config(
    BLOCK_N, BLOCK_V, BLOCK_F, num_warps, num_stages
):
    blocks = {"BLOCK_N": BLOCK_N, "BLOCK_V": BLOCK_V, "BLOCK_F": BLOCK_F}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def linear_cross_entropy_backward_ds_kernel_footprint(
    width, /, num_stages, BLOCK_N, BLOCK_F, BLOCK_V, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (BLOCK_N * BLOCK_F + BLOCK_V * BLOCK_F)
    held = BLOCK_N * BLOCK_V
    return shared, held


# Used where nothing is timed, by the bytes of an element.
linear_cross_entropy_backward_ds_kernel_default = {
    2: linear_cross_entropy_backward_ds_kernel_config(128, 128, 64, 8, 3),
    4: linear_cross_entropy_backward_ds_kernel_config(64, 64, 32, 4, 2),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
linear_cross_entropy_backward_ds_kernel_tuned = {
    2: _Tuned(
        linear_cross_entropy_backward_ds_kernel,
        [
            linear_cross_entropy_backward_ds_kernel_config(*row)
            for row in [
                (128, 128, 64, 8, 3), (64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 3),
                (64, 64, 64, 4, 4), (64, 128, 32, 4, 3), (64, 128, 32, 4, 4), (64, 128, 64, 4, 3),
                (64, 128, 64, 4, 4), (128, 64, 32, 4, 3), (128, 64, 32, 4, 4), (128, 64, 64, 4, 3),
                (128, 64, 64, 4, 4), (128, 128, 32, 8, 3), (128, 128, 32, 8, 4),
                (128, 128, 64, 8, 4), (128, 256, 32, 8, 3), (128, 256, 32, 8, 4),
                (128, 256, 64, 8, 3), (128, 256, 64, 8, 4),
            ]
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_backward_ds_kernel_footprint, 2),
    ),
    4: _Tuned(
        linear_cross_entropy_backward_ds_kernel,
        [
            linear_cross_entropy_backward_ds_kernel_config(*row)
            for row in itertools.product((64, 32), (64, 32), (32, 16), (4,), (2, 3))
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_backward_ds_kernel_footprint, 4),
    ),
}


@triton.jit
def linear_cross_entropy_backward_dX_kernel(
    W_ptr, ds_ptr, dX_ptr,
    stride_W_v, stride_W_f,
    stride_ds_n, stride_ds_v,
    stride_dX_n, stride_dX_f,
    N, F, V,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_V: tl.constexpr, DESCRIBED: tl.constexpr,
):
    """A program does BLOCK_N iterations of n by BLOCK_F iterations of f.

    Reads W (V, F), ds (N, V).
    Writes dX (N, F).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_n = tl.cdiv(N, BLOCK_N)
    blocks_f = tl.cdiv(F, BLOCK_F)
    # Blocks in groups, so that neighbouring programs read the same rows and columns.
    block_n, block_f = tl.swizzle2d(pid // blocks_f, pid % blocks_f, blocks_n, blocks_f, 8)
    n_first = block_n * BLOCK_N
    n = n_first + tl.arange(0, BLOCK_N)
    f = block_f * BLOCK_F + tl.arange(0, BLOCK_F)

    dX = _hidden_zeros(BLOCK_N, BLOCK_F, 0, N)  # no constants, or ptxas lets each product wait
    v_full = V // BLOCK_V * BLOCK_V  # blocks before this one are full
    # Blocks that the GPU copies by itself.
    if DESCRIBED:
        ds_blocks = tl.make_tensor_descriptor(ds_ptr, [N, V], [stride_ds_n, 1], [BLOCK_N, BLOCK_V])
    # Full blocks.
    for v_first in range(0, v_full, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        if DESCRIBED:
            ds_nv = ds_blocks.load([tl.cast(n_first, tl.int32), tl.cast(v_first, tl.int32)])  # S4
        else:
            ds_nv = tl.load(
                ds_ptr + n[:, None] * stride_ds_n + v[None, :] * stride_ds_v,
                mask=n[:, None] < N,
                other=0.0
            )  # S4
        W_vf = tl.load(
            W_ptr + v[:, None] * stride_W_v + f[None, :] * stride_W_f,
            mask=f[None, :] < F,
            other=0.0
        )  # S4
        dX = tl.dot(
            ds_nv.to(tl.float32).to(W_ptr.dtype.element_ty), W_vf, dX, input_precision="ieee"
        )  # S4
    # The last, partial block.
    for v_first in range(v_full, V, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        if DESCRIBED:
            ds_nv = ds_blocks.load([tl.cast(n_first, tl.int32), tl.cast(v_first, tl.int32)])  # S4
        else:
            ds_nv = tl.load(
                ds_ptr + n[:, None] * stride_ds_n + v[None, :] * stride_ds_v,
                mask=(n[:, None] < N) & (v[None, :] < V),
                other=0.0
            )  # S4
        W_vf = tl.load(
            W_ptr + v[:, None] * stride_W_v + f[None, :] * stride_W_f,
            mask=(f[None, :] < F) & (v[:, None] < V),
            other=0.0
        )  # S4
        dX = tl.dot(
            ds_nv.to(tl.float32).to(W_ptr.dtype.element_ty), W_vf, dX, input_precision="ieee"
        )  # S4
    tl.store(
        dX_ptr + n[:, None] * stride_dX_n + f[None, :] * stride_dX_f,
        dX,
        mask=(n[:, None] < N) & (f[None, :] < F)
    )  # S4


def linear_cross_entropy_backward_dX_kernel_config(
    BLOCK_N, BLOCK_F, BLOCK_V, DESCRIBED, num_warps, num_stages
):
    blocks = {"BLOCK_N": BLOCK_N, "BLOCK_F": BLOCK_F, "BLOCK_V": BLOCK_V, "DESCRIBED": DESCRIBED}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def linear_cross_entropy_backward_dX_kernel_footprint(
    width, /, num_stages, BLOCK_N, BLOCK_V, BLOCK_F, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * (4 * BLOCK_N * BLOCK_V + width * BLOCK_F * BLOCK_V)
    held = BLOCK_N * BLOCK_F + BLOCK_N * BLOCK_V
    return shared, held


# Used where nothing is timed, by the bytes of an element.
linear_cross_entropy_backward_dX_kernel_default = {
    2: linear_cross_entropy_backward_dX_kernel_config(64, 64, 32, 0, 8, 2),
    4: linear_cross_entropy_backward_dX_kernel_config(64, 64, 32, 0, 4, 2),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
linear_cross_entropy_backward_dX_kernel_tuned = {
    2: _Described(
        linear_cross_entropy_backward_dX_kernel,
        [
            linear_cross_entropy_backward_dX_kernel_config(*row)
            for row in [
                (64, 64, 32, 0, 8, 2), (64, 64, 32, 0, 4, 3), (64, 64, 32, 0, 4, 4),
                (64, 64, 64, 0, 4, 3), (64, 64, 64, 0, 4, 4), (64, 128, 32, 0, 4, 3),
                (64, 128, 32, 0, 4, 4), (64, 128, 64, 0, 4, 3), (64, 128, 64, 0, 4, 4),
                (128, 64, 32, 0, 4, 3), (128, 64, 32, 0, 4, 4), (128, 64, 64, 0, 4, 3),
                (128, 64, 64, 0, 4, 4), (128, 128, 32, 0, 8, 3), (128, 128, 32, 0, 8, 4),
                (128, 128, 64, 0, 8, 3), (128, 128, 64, 0, 8, 4), (128, 256, 32, 0, 8, 3),
                (128, 256, 32, 0, 8, 4), (128, 256, 64, 0, 8, 3), (128, 256, 64, 0, 8, 4),
                (64, 64, 32, 1, 8, 2), (64, 64, 32, 1, 4, 3), (64, 64, 32, 1, 4, 4),
                (64, 64, 64, 1, 4, 3), (64, 64, 64, 1, 4, 4), (64, 128, 32, 1, 4, 3),
                (64, 128, 32, 1, 4, 4), (64, 128, 64, 1, 4, 3), (64, 128, 64, 1, 4, 4),
                (128, 64, 32, 1, 4, 3), (128, 64, 32, 1, 4, 4), (128, 64, 64, 1, 4, 3),
                (128, 64, 64, 1, 4, 4), (128, 128, 32, 1, 8, 3), (128, 128, 32, 1, 8, 4),
                (128, 128, 64, 1, 8, 3), (128, 128, 64, 1, 8, 4), (128, 256, 32, 1, 8, 3),
                (128, 256, 32, 1, 8, 4), (128, 256, 64, 1, 8, 3), (128, 256, 64, 1, 8, 4),
            ]
        ],
        key=["N", "F", "V"],
        described=["ds_ptr"],
        fitting=_fitting(linear_cross_entropy_backward_dX_kernel_footprint, 2),
    ),
    4: _Tuned(
        linear_cross_entropy_backward_dX_kernel,
        [
            linear_cross_entropy_backward_dX_kernel_config(*row)
            for row in itertools.product((64, 32), (64, 32), (32, 16), (0,), (4,), (2, 3))
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_backward_dX_kernel_footprint, 4),
    ),
}


@triton.jit
def linear_cross_entropy_backward_dW_kernel(
    X_ptr, ds_ptr, dW_ptr,
    stride_X_n, stride_X_f,
    stride_ds_n, stride_ds_v,
    stride_dW_v, stride_dW_f,
    N, F, V,
    INDEX: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_N: tl.constexpr, DESCRIBED: tl.constexpr,
):
    """A program does BLOCK_V iterations of v by BLOCK_F iterations of f.

    Reads X (N, F), ds (N, V).
    Writes dW (V, F).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_v = tl.cdiv(V, BLOCK_V)
    blocks_f = tl.cdiv(F, BLOCK_F)
    # Blocks in groups, so that neighbouring programs read the same rows and columns.
    block_v, block_f = tl.swizzle2d(pid // blocks_f, pid % blocks_f, blocks_v, blocks_f, 8)
    v_first = block_v * BLOCK_V
    v = v_first + tl.arange(0, BLOCK_V)
    f_first = block_f * BLOCK_F
    f = f_first + tl.arange(0, BLOCK_F)

    dW = _hidden_zeros(BLOCK_V, BLOCK_F, 0, V)  # no constants, or ptxas lets each product wait
    n_full = N // BLOCK_N * BLOCK_N  # blocks before this one are full
    # Blocks that the GPU copies by itself.
    if DESCRIBED:
        ds_blocks = tl.make_tensor_descriptor(ds_ptr, [N, V], [stride_ds_n, 1], [BLOCK_N, BLOCK_V])
        X_blocks = tl.make_tensor_descriptor(X_ptr, [N, F], [stride_X_n, 1], [BLOCK_N, BLOCK_F])
    # Full blocks.
    for n_first in range(0, n_full, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        if DESCRIBED:
            ds_nv = tl.trans(
                ds_blocks.load([tl.cast(n_first, tl.int32), tl.cast(v_first, tl.int32)])
            )  # S5
        else:
            ds_nv = tl.load(
                ds_ptr + n[None, :] * stride_ds_n + v[:, None] * stride_ds_v,
                mask=v[:, None] < V,
                other=0.0
            )  # S5
        if DESCRIBED:
            X_nf = X_blocks.load([tl.cast(n_first, tl.int32), tl.cast(f_first, tl.int32)])  # S5
        else:
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=f[None, :] < F,
                other=0.0
            )  # S5
        dW = tl.dot(
            ds_nv.to(tl.float32).to(X_ptr.dtype.element_ty), X_nf, dW, input_precision="ieee"
        )  # S5
    # The last, partial block.
    for n_first in range(n_full, N, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        if DESCRIBED:
            ds_nv = tl.trans(
                ds_blocks.load([tl.cast(n_first, tl.int32), tl.cast(v_first, tl.int32)])
            )  # S5
        else:
            ds_nv = tl.load(
                ds_ptr + n[None, :] * stride_ds_n + v[:, None] * stride_ds_v,
                mask=(v[:, None] < V) & (n[None, :] < N),
                other=0.0
            )  # S5
        if DESCRIBED:
            X_nf = X_blocks.load([tl.cast(n_first, tl.int32), tl.cast(f_first, tl.int32)])  # S5
        else:
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=(f[None, :] < F) & (n[:, None] < N),
                other=0.0
            )  # S5
        dW = tl.dot(
            ds_nv.to(tl.float32).to(X_ptr.dtype.element_ty), X_nf, dW, input_precision="ieee"
        )  # S5
    tl.store(
        dW_ptr + v[:, None] * stride_dW_v + f[None, :] * stride_dW_f,
        dW,
        mask=(v[:, None] < V) & (f[None, :] < F)
    )  # S5


def linear_cross_entropy_backward_dW_kernel_config(
    BLOCK_V, BLOCK_F, BLOCK_N, DESCRIBED, num_warps, num_stages
):
    blocks = {"BLOCK_V": BLOCK_V, "BLOCK_F": BLOCK_F, "BLOCK_N": BLOCK_N, "DESCRIBED": DESCRIBED}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def linear_cross_entropy_backward_dW_kernel_footprint(
    width, /, num_stages, BLOCK_V, BLOCK_N, BLOCK_F, DESCRIBED, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * (4 * BLOCK_V * BLOCK_N + width * BLOCK_F * BLOCK_N)
    held = BLOCK_V * BLOCK_F + (1 - DESCRIBED) * BLOCK_V * BLOCK_N
    return shared, held


# Used where nothing is timed, by the bytes of an element.
linear_cross_entropy_backward_dW_kernel_default = {
    2: linear_cross_entropy_backward_dW_kernel_config(64, 64, 32, 0, 8, 2),
    4: linear_cross_entropy_backward_dW_kernel_config(64, 64, 32, 0, 4, 2),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
linear_cross_entropy_backward_dW_kernel_tuned = {
    2: _Described(
        linear_cross_entropy_backward_dW_kernel,
        [
            linear_cross_entropy_backward_dW_kernel_config(*row)
            for row in [
                (64, 64, 32, 0, 8, 2), (64, 64, 32, 0, 4, 3), (64, 64, 32, 0, 4, 4),
                (64, 64, 64, 0, 4, 3), (64, 64, 64, 0, 4, 4), (64, 128, 32, 0, 4, 3),
                (64, 128, 32, 0, 4, 4), (64, 128, 64, 0, 4, 3), (64, 128, 64, 0, 4, 4),
                (128, 64, 32, 0, 4, 3), (128, 64, 32, 0, 4, 4), (128, 64, 64, 0, 4, 3),
                (128, 64, 64, 0, 4, 4), (128, 128, 32, 0, 8, 3), (128, 128, 32, 0, 8, 4),
                (128, 128, 64, 0, 8, 3), (128, 128, 64, 0, 8, 4), (128, 256, 32, 0, 8, 3),
                (128, 256, 32, 0, 8, 4), (128, 256, 64, 0, 8, 3), (128, 256, 64, 0, 8, 4),
                (64, 64, 32, 1, 8, 2), (64, 64, 32, 1, 4, 3), (64, 64, 32, 1, 4, 4),
                (64, 64, 64, 1, 4, 3), (64, 64, 64, 1, 4, 4), (64, 128, 32, 1, 4, 3),
                (64, 128, 32, 1, 4, 4), (64, 128, 64, 1, 4, 3), (64, 128, 64, 1, 4, 4),
                (128, 64, 32, 1, 4, 3), (128, 64, 32, 1, 4, 4), (128, 64, 64, 1, 4, 3),
                (128, 64, 64, 1, 4, 4), (128, 128, 32, 1, 8, 3), (128, 128, 32, 1, 8, 4),
                (128, 128, 64, 1, 8, 3), (128, 128, 64, 1, 8, 4), (128, 256, 32, 1, 8, 3),
                (128, 256, 32, 1, 8, 4), (128, 256, 64, 1, 8, 3), (128, 256, 64, 1, 8, 4),
            ]
        ],
        key=["N", "F", "V"],
        described=["ds_ptr", "X_ptr"],
        fitting=_fitting(linear_cross_entropy_backward_dW_kernel_footprint, 2),
    ),
    4: _Tuned(
        linear_cross_entropy_backward_dW_kernel,
        [
            linear_cross_entropy_backward_dW_kernel_config(*row)
            for row in itertools.product((64, 32), (64, 32), (32, 16), (0,), (4,), (2, 3))
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_backward_dW_kernel_footprint, 4),
    ),
}


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(linear_cross_entropy_kernel, triton.JITFunction)
_FLOAT = (torch.float16, torch.bfloat16, torch.float32)
_INT = (torch.int32, torch.int64)


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


def _zeros(shape, dtype, device):
    """Return zeros in the memory of one element."""
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


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


def linear_cross_entropy_forward(X, W, y, *, tune=True, check=False):
    """Run linear_cross_entropy, and return what its gradients need besides.

    Args:
        X: (N, F), float16, bfloat16 or float32, any strides.
        W: (V, F), float16, bfloat16 or float32, any strides.
        y: (N,), int32 or int64, any strides; values from 0 up to, not including, V.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of y. It waits
            for the GPU; without it, they are trusted.

    Returns:
        loss (N,), lse (N,) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT), ("W", W, 2, _FLOAT), ("y", y, 1, _INT))
    N, F = X.shape
    V = W.shape[0]
    _check_shape("W", W, (V, F), "(V, F) with F = X.shape[1]")
    _check_shape("y", y, (N,), "(N,) with N = X.shape[0]")
    if F <= 512:
        raise ValueError(f"the listing assumes F > 512; here F = {F}")
    if check:
        if ((y < 0) | (y >= V)).any():
            raise ValueError(f"y should hold integers from 0 up to, not including, {V}")
    lse = torch.empty((N,), dtype=torch.float32, device=X.device)
    loss = torch.empty((N,), dtype=X.dtype, device=X.device)
    index = _index_type(X, W, y, lse, loss)
    width = X.element_size()

    if _INTERPRETED or not tune:
        run = linear_cross_entropy_kernel
        blocks = _fitted(
            linear_cross_entropy_kernel_default[width],
            linear_cross_entropy_kernel_footprint,
            width,
            {},
            X.device.index
        ).all_kwargs()
    else:
        run = linear_cross_entropy_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_N"]),)

    if N > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, W, y, lse, loss,
                *X.stride(),
                *W.stride(),
                *y.stride(),
                *lse.stride(),
                *loss.stride(),
                N, F, V,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return loss, lse


def linear_cross_entropy_backward(X, W, y, lse, dloss, *, wanted=None, tune=True, check=False):
    """Return the gradients of linear_cross_entropy.

    Args:
        X: (N, F), float16, bfloat16 or float32, any strides.
        W: (V, F), float16, bfloat16 or float32, any strides.
        y: (N,), int32 or int64, any strides; values from 0 up to, not including, V.
        lse: (N,), float32, any strides.
        dloss: (N,), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of y. It waits
            for the GPU; without it, they are trusted.

    Returns:
        dX (N, F), dW (V, F).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("X", X, 2, _FLOAT), ("W", W, 2, _FLOAT), ("y", y, 1, _INT),
        ("lse", lse, 1, (torch.float32,)), ("dloss", dloss, 1, _FLOAT)
    )
    N, F = X.shape
    V = W.shape[0]
    _check_shape("W", W, (V, F), "(V, F) with F = X.shape[1]")
    _check_shape("y", y, (N,), "(N,) with N = X.shape[0]")
    _check_shape("lse", lse, (N,), "(N,) with N = X.shape[0]")
    _check_shape("dloss", dloss, (N,), "(N,) with N = X.shape[0]")
    if F <= 512:
        raise ValueError(f"the listing assumes F > 512; here F = {F}")
    if check:
        if ((y < 0) | (y >= V)).any():
            raise ValueError(f"y should hold integers from 0 up to, not including, {V}")
    wanted = _wanted(wanted, ("dX", "dW"))
    ds = torch.empty((N, V), dtype=torch.float32, device=X.device)
    dX = None
    if "dX" in wanted:
        dX = torch.empty((N, F), dtype=X.dtype, device=X.device)
    dW = None
    if "dW" in wanted:
        dW = torch.empty((V, F), dtype=X.dtype, device=X.device)
    index = _index_type(*_given(X, W, y, lse, dloss, ds, dX, dW))
    width = X.element_size()

    if _INTERPRETED or not tune:
        run = linear_cross_entropy_backward_ds_kernel
        blocks = _fitted(
            linear_cross_entropy_backward_ds_kernel_default[width],
            linear_cross_entropy_backward_ds_kernel_footprint,
            width,
            {},
            X.device.index
        ).all_kwargs()
    else:
        run = linear_cross_entropy_backward_ds_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_N"]) * triton.cdiv(V, meta["BLOCK_V"]),)

    if min(N, V) > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, W, y, lse, dloss, ds,
                *X.stride(),
                *W.stride(),
                *y.stride(),
                *lse.stride(),
                *dloss.stride(),
                *ds.stride(),
                N, F, V,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = linear_cross_entropy_backward_dX_kernel
        blocks = _fitted(
            linear_cross_entropy_backward_dX_kernel_default[width],
            linear_cross_entropy_backward_dX_kernel_footprint,
            width,
            {},
            X.device.index
        ).all_kwargs()
    else:
        run = linear_cross_entropy_backward_dX_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_N"]) * triton.cdiv(F, meta["BLOCK_F"]),)

    if min(N, F) > 0 and "dX" in wanted:
        with torch.cuda.device_of(X):
            run[grid](
                W, ds, dX,
                *W.stride(),
                *ds.stride(),
                *dX.stride(),
                N, F, V,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = linear_cross_entropy_backward_dW_kernel
        blocks = _fitted(
            linear_cross_entropy_backward_dW_kernel_default[width],
            linear_cross_entropy_backward_dW_kernel_footprint,
            width,
            {},
            X.device.index
        ).all_kwargs()
    else:
        run = linear_cross_entropy_backward_dW_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(V, meta["BLOCK_V"]) * triton.cdiv(F, meta["BLOCK_F"]),)

    if min(V, F) > 0 and "dW" in wanted:
        with torch.cuda.device_of(X):
            run[grid](
                X, ds, dW,
                *X.stride(),
                *ds.stride(),
                *dW.stride(),
                N, F, V,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dX, dW


@torch.library.custom_op(_free("linear_cross_entropy_forward_d9efb047"), mutates_args=())
def _linear_cross_entropy_forward_operator(
    X: torch.Tensor, W: torch.Tensor, y: torch.Tensor, tune: bool, check: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return linear_cross_entropy_forward(X, W, y, tune=tune, check=check)


@_linear_cross_entropy_forward_operator.register_fake
def _(X, W, y, tune, check):
    N = X.shape[0]
    return (
        torch.empty((N,), dtype=X.dtype, device=X.device),
        torch.empty((N,), dtype=torch.float32, device=X.device),
    )


@torch.library.custom_op(_free("linear_cross_entropy_backward_d9efb047"), mutates_args=())
def _linear_cross_entropy_backward_operator(
    X: torch.Tensor, W: torch.Tensor, y: torch.Tensor, lse: torch.Tensor, dloss: torch.Tensor,
    wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = linear_cross_entropy_backward(
        X,
        W,
        y,
        lse,
        dloss,
        wanted=[name for name, each in zip(("dX", "dW"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_linear_cross_entropy_backward_operator.register_fake
def _(X, W, y, lse, dloss, wanted, tune):
    N = X.shape[0]
    F = X.shape[1]
    V = W.shape[0]
    found = (
        torch.empty((N, F), dtype=X.dtype, device=X.device),
        torch.empty((V, F), dtype=X.dtype, device=X.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _linear_cross_entropy_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    X, W, y, tune, check = inputs
    loss, lse = output
    ctx.save_for_backward(X, W, y, lse)
    ctx.numbers = (tune,)
    ctx.like = (_like(loss),)
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)


def _linear_cross_entropy_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dloss, _ = found
    X, W, y, lse = ctx.saved_tensors
    (tune,) = ctx.numbers
    (loss_like,) = ctx.like
    if dloss is None:
        dloss = _zeros(*loss_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1]]
    found = iter(_linear_cross_entropy_backward_operator(X, W, y, lse, dloss, wanted, tune))
    dX, dW = (next(found) if each else None for each in wanted)
    return dX, dW, None, None, None


def _linear_cross_entropy_second(ctx, *found):
    raise RuntimeError(
        "linear_cross_entropy has no second derivative: its backward pass is derived once. Call "
        "backward without create_graph=True"
    )


_linear_cross_entropy_forward_operator.register_autograd(
    _linear_cross_entropy_gradients, setup_context=_linear_cross_entropy_keep
)
_linear_cross_entropy_backward_operator.register_autograd(_linear_cross_entropy_second)


def linear_cross_entropy(X, W, y, *, tune=True, check=False):
    """The cross entropy of a linear layer's softmax with an integer label, in one pass.
    Differentiable: gradients come from linear_cross_entropy_backward.

    Args:
        X: (N, F), float16, bfloat16 or float32, any strides.
        W: (V, F), float16, bfloat16 or float32, any strides.
        y: (N,), int32 or int64, any strides; values from 0 up to, not including, V.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of y. It waits
            for the GPU; without it, they are trusted.

    Returns:
        loss (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    loss, _ = _linear_cross_entropy_forward_operator(X, W, y, tune, check)
    return loss

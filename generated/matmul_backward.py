# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def matmul(A: Float[Array, "M K"], B: Float[Array, "K N"], bias: Float[Array, "N"]):
#         C = zeros((M, N))
#         for i in range(0, M):
#             for j in range(0, N):
#                 acc = 0.0  # S1: an empty sum
#                 for k in range(0, K):
#                     acc = acc + A[i, k] * B[k, j]  # S2: Aggregation over k
#                 C[i, j] = max(acc + bias[j], 0.0)  # S3: bias and activation
#         return C
#
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def matmul_backward(
#         A: Float[Array, "M K"],
#         B: Float[Array, "K N"],
#         bias: Float[Array, "N"],
#         C: Float[Array, "M N"],
#         dC: Float[Array, "M N"]
#     ):
#         dA = zeros((M, K))
#         dB = zeros((K, N))
#         dbias = zeros(N)
#         for i in range(0, M):
#             for k in range(0, K):
#                 for j in range(0, N):
#                     dacc = dC[i, j] if C[i, j] > 0.0 else 0.0
#                     dA[i, k] = dA[i, k] + dacc * B[k, j]
#         for k in range(0, K):
#             for j in range(0, N):
#                 for i in range(0, M):
#                     dacc_2 = dC[i, j] if C[i, j] > 0.0 else 0.0
#                     dB[k, j] = dB[k, j] + dacc_2 * A[i, k]
#         for j in range(0, N):
#             for i in range(0, M):
#                 dbias[j] = dbias[j] + (dC[i, j] if C[i, j] > 0.0 else 0.0)
#         return dA, dB, dbias
#
# The steps from there to the forward kernels:
#   1. run i and j in parallel, acc private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def matmul(A: Float[Array, "M K"], B: Float[Array, "K N"], bias: Float[Array, "N"]):
#         C = zeros((M, N))
#         for i in parallel(0, M):
#             private: acc
#             for j in parallel(0, N):
#                 private: acc
#                 acc = 0.0  # S1: an empty sum
#                 for k in range(0, K):
#                     acc = acc + A[i, k] * B[k, j]  # S2: Aggregation over k
#                 C[i, j] = max(acc + bias[j], 0.0)  # S3: bias and activation
#         return C
#
# The steps from there to the backward kernels:
#   1. run i, k and j in parallel, dacc and dacc_2 private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def matmul_backward(
#         A: Float[Array, "M K"],
#         B: Float[Array, "K N"],
#         bias: Float[Array, "N"],
#         C: Float[Array, "M N"],
#         dC: Float[Array, "M N"]
#     ):
#         dA = zeros((M, K))
#         dB = zeros((K, N))
#         dbias = zeros(N)
#         for i in parallel(0, M):
#             private: dacc
#             for k in parallel(0, K):
#                 private: dacc
#                 for j in range(0, N):
#                     dacc = dC[i, j] if C[i, j] > 0.0 else 0.0  # S1
#                     dA[i, k] = dA[i, k] + dacc * B[k, j]  # S2
#         for k in parallel(0, K):
#             private: dacc_2
#             for j in parallel(0, N):
#                 private: dacc_2
#                 for i in range(0, M):
#                     dacc_2 = dC[i, j] if C[i, j] > 0.0 else 0.0  # S3
#                     dB[k, j] = dB[k, j] + dacc_2 * A[i, k]  # S4
#         for j in parallel(0, N):
#             for i in range(0, M):
#                 dbias[j] = dbias[j] + (dC[i, j] if C[i, j] > 0.0 else 0.0)  # S5
#         return dA, dB, dbias

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
def matmul_kernel(
    A_ptr, B_ptr, bias_ptr, C_ptr,
    stride_A_i, stride_A_k,
    stride_B_k, stride_B_j,
    stride_bias_j,
    stride_C_i, stride_C_j,
    M, K, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """A program does BLOCK_I iterations of i by BLOCK_J iterations of j.

    Reads A (M, K), B (K, N), bias (N,).
    Writes C (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    blocks_j = tl.cdiv(N, BLOCK_J)
    # Blocks in groups, so that neighbouring programs read the same rows and columns.
    block_i, block_j = tl.swizzle2d(pid // blocks_j, pid % blocks_j, blocks_i, blocks_j, 8)
    i = block_i * BLOCK_I + tl.arange(0, BLOCK_I)
    j = block_j * BLOCK_J + tl.arange(0, BLOCK_J)

    acc = tl.zeros([BLOCK_I, BLOCK_J], tl.float32)  # S1
    k_full = K // BLOCK_K * BLOCK_K  # blocks before this one are full
    # Full blocks.
    for k_first in range(0, k_full, BLOCK_K):
        k = (k_first + tl.arange(0, BLOCK_K)).to(INDEX)
        A_ik = tl.load(
            A_ptr + i[:, None] * stride_A_i + k[None, :] * stride_A_k,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        B_kj = tl.load(
            B_ptr + k[:, None] * stride_B_k + j[None, :] * stride_B_j,
            mask=j[None, :] < N,
            other=0.0
        )  # S2
        acc = tl.dot(A_ik, B_kj, acc, input_precision="ieee")  # S2
    # The last, partial block.
    for k_first in range(k_full, K, BLOCK_K):
        k = (k_first + tl.arange(0, BLOCK_K)).to(INDEX)
        A_ik = tl.load(
            A_ptr + i[:, None] * stride_A_i + k[None, :] * stride_A_k,
            mask=(i[:, None] < M) & (k[None, :] < K),
            other=0.0
        )  # S2
        B_kj = tl.load(
            B_ptr + k[:, None] * stride_B_k + j[None, :] * stride_B_j,
            mask=(j[None, :] < N) & (k[:, None] < K),
            other=0.0
        )  # S2
        acc = tl.dot(A_ik, B_kj, acc, input_precision="ieee")  # S2
    bias_j = tl.load(bias_ptr + j * stride_bias_j, mask=j < N, other=0.0)  # S3
    tl.store(
        C_ptr + i[:, None] * stride_C_i + j[None, :] * stride_C_j,
        tl.maximum(acc + bias_j.to(tl.float32)[None, :], 0.0),
        mask=(i[:, None] < M) & (j[None, :] < N)
    )  # S3


def matmul_kernel_config(BLOCK_I, BLOCK_J, BLOCK_K, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "BLOCK_K": BLOCK_K}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def matmul_kernel_footprint(width, /, num_stages, BLOCK_I, BLOCK_K, BLOCK_J, **_):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (BLOCK_I * BLOCK_K + BLOCK_J * BLOCK_K)
    held = BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
matmul_kernel_default = {
    2: matmul_kernel_config(128, 128, 64, 8, 3),
    4: matmul_kernel_config(64, 64, 32, 4, 2),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
matmul_kernel_tuned = {
    2: _Tuned(
        matmul_kernel,
        [
            matmul_kernel_config(*row)
            for row in [
                (128, 128, 64, 8, 3), (64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 3),
                (64, 64, 64, 4, 4), (64, 128, 32, 4, 3), (64, 128, 32, 4, 4), (64, 128, 64, 4, 3),
                (64, 128, 64, 4, 4), (128, 64, 32, 4, 3), (128, 64, 32, 4, 4), (128, 64, 64, 4, 3),
                (128, 64, 64, 4, 4), (128, 128, 32, 8, 3), (128, 128, 32, 8, 4),
                (128, 128, 64, 8, 4), (128, 256, 32, 8, 3), (128, 256, 32, 8, 4),
                (128, 256, 64, 8, 3), (128, 256, 64, 8, 4),
            ]
        ],
        key=["M", "K", "N"],
        fitting=_fitting(matmul_kernel_footprint, 2),
    ),
    4: _Tuned(
        matmul_kernel,
        [
            matmul_kernel_config(*row)
            for row in itertools.product((64, 32), (64, 32), (32, 16), (4,), (2, 3))
        ],
        key=["M", "K", "N"],
        fitting=_fitting(matmul_kernel_footprint, 4),
    ),
}


@triton.jit
def matmul_backward_dA_kernel(
    B_ptr, C_ptr, dC_ptr, dA_ptr,
    stride_B_k, stride_B_j,
    stride_C_i, stride_C_j,
    stride_dC_i, stride_dC_j,
    stride_dA_i, stride_dA_k,
    M, K, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_J: tl.constexpr, DESCRIBED: tl.constexpr,
):
    """A program does BLOCK_I iterations of i by BLOCK_K iterations of k.

    Reads B (K, N), C (M, N), dC (M, N).
    Writes dA (M, K).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    blocks_k = tl.cdiv(K, BLOCK_K)
    # Blocks in groups, so that neighbouring programs read the same rows and columns.
    block_i, block_k = tl.swizzle2d(pid // blocks_k, pid % blocks_k, blocks_i, blocks_k, 8)
    i_first = block_i * BLOCK_I
    i = i_first + tl.arange(0, BLOCK_I)
    k = block_k * BLOCK_K + tl.arange(0, BLOCK_K)

    dA = _hidden_zeros(BLOCK_I, BLOCK_K, 0, M)  # no constants, or ptxas lets each product wait
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    # Blocks that the GPU copies by itself.
    if DESCRIBED:
        C_blocks = tl.make_tensor_descriptor(C_ptr, [M, N], [stride_C_i, 1], [BLOCK_I, BLOCK_J])
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        if DESCRIBED:
            C_ij = C_blocks.load([tl.cast(i_first, tl.int32), tl.cast(j_first, tl.int32)])  # S1
        else:
            C_ij = tl.load(
                C_ptr + i[:, None] * stride_C_i + j[None, :] * stride_C_j,
                mask=i[:, None] < M,
                other=0.0
            )  # S1
        dC_ij = tl.load(
            dC_ptr + i[:, None] * stride_dC_i + j[None, :] * stride_dC_j,
            mask=(i[:, None] < M) & (C_ij.to(tl.float32) > 0.0),
            other=0.0
        )  # S1
        dacc = tl.where(C_ij.to(tl.float32) > 0.0, dC_ij.to(tl.float32), 0.0)  # S1
        B_kj = tl.load(
            B_ptr + k[:, None] * stride_B_k + j[None, :] * stride_B_j,
            mask=k[:, None] < K,
            other=0.0
        )  # S2
        dA = tl.dot(
            dacc.to(dC_ptr.dtype.element_ty), tl.trans(B_kj), dA, input_precision="ieee"
        )  # S2
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        if DESCRIBED:
            C_ij = C_blocks.load([tl.cast(i_first, tl.int32), tl.cast(j_first, tl.int32)])  # S1
        else:
            C_ij = tl.load(
                C_ptr + i[:, None] * stride_C_i + j[None, :] * stride_C_j,
                mask=(i[:, None] < M) & (j[None, :] < N),
                other=0.0
            )  # S1
        dC_ij = tl.load(
            dC_ptr + i[:, None] * stride_dC_i + j[None, :] * stride_dC_j,
            mask=(i[:, None] < M) & (j[None, :] < N) & (C_ij.to(tl.float32) > 0.0),
            other=0.0
        )  # S1
        dacc = tl.where(C_ij.to(tl.float32) > 0.0, dC_ij.to(tl.float32), 0.0)  # S1
        B_kj = tl.load(
            B_ptr + k[:, None] * stride_B_k + j[None, :] * stride_B_j,
            mask=(k[:, None] < K) & (j[None, :] < N),
            other=0.0
        )  # S2
        dA = tl.dot(
            dacc.to(dC_ptr.dtype.element_ty), tl.trans(B_kj), dA, input_precision="ieee"
        )  # S2
    tl.store(
        dA_ptr + i[:, None] * stride_dA_i + k[None, :] * stride_dA_k,
        dA,
        mask=(i[:, None] < M) & (k[None, :] < K)
    )  # S2


def matmul_backward_dA_kernel_config(BLOCK_I, BLOCK_K, BLOCK_J, DESCRIBED, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_K": BLOCK_K, "BLOCK_J": BLOCK_J, "DESCRIBED": DESCRIBED}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def matmul_backward_dA_kernel_footprint(width, /, num_stages, BLOCK_I, BLOCK_J, BLOCK_K, **_):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (2 * BLOCK_I * BLOCK_J + BLOCK_K * BLOCK_J)
    held = BLOCK_I * BLOCK_K + 2 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
matmul_backward_dA_kernel_default = {
    2: matmul_backward_dA_kernel_config(64, 64, 32, 0, 8, 2),
    4: matmul_backward_dA_kernel_config(64, 64, 32, 0, 4, 2),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
matmul_backward_dA_kernel_tuned = {
    2: _Described(
        matmul_backward_dA_kernel,
        [
            matmul_backward_dA_kernel_config(*row)
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
        key=["M", "K", "N"],
        described=["C_ptr"],
        fitting=_fitting(matmul_backward_dA_kernel_footprint, 2),
    ),
    4: _Tuned(
        matmul_backward_dA_kernel,
        [
            matmul_backward_dA_kernel_config(*row)
            for row in itertools.product((64, 32), (64, 32), (32, 16), (0,), (4,), (2, 3))
        ],
        key=["M", "K", "N"],
        fitting=_fitting(matmul_backward_dA_kernel_footprint, 4),
    ),
}


@triton.jit
def matmul_backward_dB_kernel(
    A_ptr, C_ptr, dC_ptr, dB_ptr,
    stride_A_i, stride_A_k,
    stride_C_i, stride_C_j,
    stride_dC_i, stride_dC_j,
    stride_dB_k, stride_dB_j,
    M, K, N,
    INDEX: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, DESCRIBED: tl.constexpr,
):
    """A program does BLOCK_K iterations of k by BLOCK_J iterations of j.

    Reads A (M, K), C (M, N), dC (M, N).
    Writes dB (K, N).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_k = tl.cdiv(K, BLOCK_K)
    blocks_j = tl.cdiv(N, BLOCK_J)
    # Blocks in groups, so that neighbouring programs read the same rows and columns.
    block_k, block_j = tl.swizzle2d(pid // blocks_j, pid % blocks_j, blocks_k, blocks_j, 8)
    k_first = block_k * BLOCK_K
    k = k_first + tl.arange(0, BLOCK_K)
    j_first = block_j * BLOCK_J
    j = j_first + tl.arange(0, BLOCK_J)

    dB = _hidden_zeros(BLOCK_K, BLOCK_J, 0, K)  # no constants, or ptxas lets each product wait
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Blocks that the GPU copies by itself.
    if DESCRIBED:
        C_blocks = tl.make_tensor_descriptor(C_ptr, [M, N], [stride_C_i, 1], [BLOCK_I, BLOCK_J])
        A_blocks = tl.make_tensor_descriptor(A_ptr, [M, K], [stride_A_i, 1], [BLOCK_I, BLOCK_K])
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        if DESCRIBED:
            C_ij = tl.trans(
                C_blocks.load([tl.cast(i_first, tl.int32), tl.cast(j_first, tl.int32)])
            )  # S3
        else:
            C_ij = tl.load(
                C_ptr + i[None, :] * stride_C_i + j[:, None] * stride_C_j,
                mask=j[:, None] < N,
                other=0.0
            )  # S3
        dC_ij = tl.load(
            dC_ptr + i[None, :] * stride_dC_i + j[:, None] * stride_dC_j,
            mask=(j[:, None] < N) & (C_ij.to(tl.float32) > 0.0),
            other=0.0
        )  # S3
        dacc_2 = tl.where(C_ij.to(tl.float32) > 0.0, dC_ij.to(tl.float32), 0.0)  # S3
        if DESCRIBED:
            A_ik = A_blocks.load([tl.cast(i_first, tl.int32), tl.cast(k_first, tl.int32)])  # S4
        else:
            A_ik = tl.load(
                A_ptr + i[:, None] * stride_A_i + k[None, :] * stride_A_k,
                mask=k[None, :] < K,
                other=0.0
            )  # S4
        dB = tl.dot(
            tl.trans(A_ik), tl.trans(dacc_2.to(dC_ptr.dtype.element_ty)), dB, input_precision="ieee"
        )  # S4
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        if DESCRIBED:
            C_ij = tl.trans(
                C_blocks.load([tl.cast(i_first, tl.int32), tl.cast(j_first, tl.int32)])
            )  # S3
        else:
            C_ij = tl.load(
                C_ptr + i[None, :] * stride_C_i + j[:, None] * stride_C_j,
                mask=(j[:, None] < N) & (i[None, :] < M),
                other=0.0
            )  # S3
        dC_ij = tl.load(
            dC_ptr + i[None, :] * stride_dC_i + j[:, None] * stride_dC_j,
            mask=(j[:, None] < N) & (i[None, :] < M) & (C_ij.to(tl.float32) > 0.0),
            other=0.0
        )  # S3
        dacc_2 = tl.where(C_ij.to(tl.float32) > 0.0, dC_ij.to(tl.float32), 0.0)  # S3
        if DESCRIBED:
            A_ik = A_blocks.load([tl.cast(i_first, tl.int32), tl.cast(k_first, tl.int32)])  # S4
        else:
            A_ik = tl.load(
                A_ptr + i[:, None] * stride_A_i + k[None, :] * stride_A_k,
                mask=(k[None, :] < K) & (i[:, None] < M),
                other=0.0
            )  # S4
        dB = tl.dot(
            tl.trans(A_ik), tl.trans(dacc_2.to(dC_ptr.dtype.element_ty)), dB, input_precision="ieee"
        )  # S4
    tl.store(
        dB_ptr + k[:, None] * stride_dB_k + j[None, :] * stride_dB_j,
        dB,
        mask=(k[:, None] < K) & (j[None, :] < N)
    )  # S4


def matmul_backward_dB_kernel_config(BLOCK_K, BLOCK_J, BLOCK_I, DESCRIBED, num_warps, num_stages):
    blocks = {"BLOCK_K": BLOCK_K, "BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I, "DESCRIBED": DESCRIBED}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def matmul_backward_dB_kernel_footprint(
    width, /, num_stages, BLOCK_J, BLOCK_I, BLOCK_K, DESCRIBED, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (2 * BLOCK_J * BLOCK_I + BLOCK_K * BLOCK_I)
    held = BLOCK_K * BLOCK_J + BLOCK_J * BLOCK_I + (1 - DESCRIBED) * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
matmul_backward_dB_kernel_default = {
    2: matmul_backward_dB_kernel_config(64, 64, 32, 0, 8, 2),
    4: matmul_backward_dB_kernel_config(64, 64, 32, 0, 4, 2),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
matmul_backward_dB_kernel_tuned = {
    2: _Described(
        matmul_backward_dB_kernel,
        [
            matmul_backward_dB_kernel_config(*row)
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
        key=["M", "K", "N"],
        described=["C_ptr", "A_ptr"],
        fitting=_fitting(matmul_backward_dB_kernel_footprint, 2),
    ),
    4: _Tuned(
        matmul_backward_dB_kernel,
        [
            matmul_backward_dB_kernel_config(*row)
            for row in itertools.product((64, 32), (64, 32), (32, 16), (0,), (4,), (2, 3))
        ],
        key=["M", "K", "N"],
        fitting=_fitting(matmul_backward_dB_kernel_footprint, 4),
    ),
}


@triton.jit
def matmul_backward_dbias_kernel(
    C_ptr, dC_ptr, dbias_ptr,
    stride_C_i, stride_C_j,
    stride_dC_i, stride_dC_j,
    stride_dbias_j,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr,
):
    """A program does BLOCK_J iterations of j.

    Reads C (M, N), dC (M, N).
    Writes dbias (N,).
    """
    pid = tl.program_id(0).to(INDEX)
    j = pid * BLOCK_J + tl.arange(0, BLOCK_J)

    dbias = tl.zeros([BLOCK_J], tl.float32)
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        C_ij = tl.load(
            C_ptr + i[None, :] * stride_C_i + j[:, None] * stride_C_j,
            mask=j[:, None] < N,
            other=0.0
        )  # S5
        dC_ij = tl.load(
            dC_ptr + i[None, :] * stride_dC_i + j[:, None] * stride_dC_j,
            mask=(j[:, None] < N) & (C_ij.to(tl.float32) > 0.0),
            other=0.0
        )  # S5
        dbias = dbias + tl.sum(
            tl.where(C_ij.to(tl.float32) > 0.0, dC_ij.to(tl.float32), 0.0), axis=1
        )  # S5
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        C_ij = tl.load(
            C_ptr + i[None, :] * stride_C_i + j[:, None] * stride_C_j,
            mask=(j[:, None] < N) & (i[None, :] < M),
            other=0.0
        )  # S5
        dC_ij = tl.load(
            dC_ptr + i[None, :] * stride_dC_i + j[:, None] * stride_dC_j,
            mask=(j[:, None] < N) & (i[None, :] < M) & (C_ij.to(tl.float32) > 0.0),
            other=0.0
        )  # S5
        dbias = dbias + tl.sum(
            tl.where(C_ij.to(tl.float32) > 0.0, dC_ij.to(tl.float32), 0.0), axis=1
        )  # S5
    tl.store(dbias_ptr + j * stride_dbias_j, dbias, mask=j < N)  # S5


def matmul_backward_dbias_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
matmul_backward_dbias_kernel_default = matmul_backward_dbias_kernel_config(128, 32, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
matmul_backward_dbias_kernel_tuned = _Tuned(
    matmul_backward_dbias_kernel,
    [
        matmul_backward_dbias_kernel_config(*row)
        for row in itertools.product((64, 128, 256), (8, 32, 64), (4, 8), (2,))
    ],
    key=["M", "N"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(matmul_kernel, triton.JITFunction)
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


def _unread(shape, dtype, device):
    """Return a tensor whose contents nothing looks at, in the memory of one element."""
    return torch.empty((), dtype=dtype, device=device).expand(shape)


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


def matmul_forward(A, B, bias, *, tune=True):
    """Run matmul, and return what its gradients need besides.

    Args:
        A: (M, K), float16, bfloat16 or float32, any strides.
        B: (K, N), float16, bfloat16 or float32, any strides.
        bias: (N,), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        C (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("A", A, 2, _FLOAT), ("B", B, 2, _FLOAT), ("bias", bias, 1, _FLOAT))
    M, K = A.shape
    N = B.shape[1]
    _check_shape("B", B, (K, N), "(K, N) with K = A.shape[1]")
    _check_shape("bias", bias, (N,), "(N,) with N = B.shape[1]")
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    index = _index_type(A, B, bias, C)
    width = A.element_size()

    if _INTERPRETED or not tune:
        run = matmul_kernel
        blocks = _fitted(
            matmul_kernel_default[width], matmul_kernel_footprint, width, {}, A.device.index
        ).all_kwargs()
    else:
        run = matmul_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]) * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(M, N) > 0:
        with torch.cuda.device_of(A):
            run[grid](
                A, B, bias, C,
                *A.stride(),
                *B.stride(),
                *bias.stride(),
                *C.stride(),
                M, K, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return (C,)


def matmul_backward(A, B, bias, C, dC, *, wanted=None, tune=True):
    """Return the gradients of matmul.

    Args:
        A: (M, K), float16, bfloat16 or float32, any strides.
        B: (K, N), float16, bfloat16 or float32, any strides.
        bias: (N,), float16, bfloat16 or float32, any strides.
        C: (M, N), float16, bfloat16 or float32, any strides.
        dC: (M, N), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dA (M, K), dB (K, N), dbias (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("A", A, 2, _FLOAT), ("B", B, 2, _FLOAT), ("bias", bias, 1, _FLOAT), ("C", C, 2, _FLOAT),
        ("dC", dC, 2, _FLOAT)
    )
    M, K = A.shape
    N = B.shape[1]
    _check_shape("B", B, (K, N), "(K, N) with K = A.shape[1]")
    _check_shape("bias", bias, (N,), "(N,) with N = B.shape[1]")
    _check_shape("C", C, (M, N), "(M, N) with M = A.shape[0] and N = B.shape[1]")
    _check_shape("dC", dC, (M, N), "(M, N) with M = A.shape[0] and N = B.shape[1]")
    wanted = _wanted(wanted, ("dA", "dB", "dbias"))
    dA = None
    if "dA" in wanted:
        dA = torch.empty((M, K), dtype=A.dtype, device=A.device)
    dB = None
    if "dB" in wanted:
        dB = torch.empty((K, N), dtype=A.dtype, device=A.device)
    dbias = None
    if "dbias" in wanted:
        dbias = torch.empty((N,), dtype=A.dtype, device=A.device)
    index = _index_type(*_given(A, B, bias, C, dC, dA, dB, dbias))
    width = A.element_size()

    if _INTERPRETED or not tune:
        run = matmul_backward_dA_kernel
        blocks = _fitted(
            matmul_backward_dA_kernel_default[width],
            matmul_backward_dA_kernel_footprint,
            width,
            {},
            A.device.index
        ).all_kwargs()
    else:
        run = matmul_backward_dA_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]) * triton.cdiv(K, meta["BLOCK_K"]),)

    if min(M, K) > 0 and "dA" in wanted:
        with torch.cuda.device_of(A):
            run[grid](
                B, C, dC, dA,
                *B.stride(),
                *C.stride(),
                *dC.stride(),
                *dA.stride(),
                M, K, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = matmul_backward_dB_kernel
        blocks = _fitted(
            matmul_backward_dB_kernel_default[width],
            matmul_backward_dB_kernel_footprint,
            width,
            {},
            A.device.index
        ).all_kwargs()
    else:
        run = matmul_backward_dB_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(K, meta["BLOCK_K"]) * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(K, N) > 0 and "dB" in wanted:
        with torch.cuda.device_of(A):
            run[grid](
                A, C, dC, dB,
                *A.stride(),
                *C.stride(),
                *dC.stride(),
                *dB.stride(),
                M, K, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = matmul_backward_dbias_kernel
        blocks = matmul_backward_dbias_kernel_default.all_kwargs()
    else:
        run = matmul_backward_dbias_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_J"]),)

    if N > 0 and "dbias" in wanted:
        with torch.cuda.device_of(A):
            run[grid](
                C, dC, dbias,
                *C.stride(),
                *dC.stride(),
                *dbias.stride(),
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dA, dB, dbias


@torch.library.custom_op(_free("matmul_forward_c20569d3"), mutates_args=())
def _matmul_forward_operator(
    A: torch.Tensor, B: torch.Tensor, bias: torch.Tensor, tune: bool
) -> torch.Tensor:
    return matmul_forward(A, B, bias, tune=tune)[0]


@_matmul_forward_operator.register_fake
def _(A, B, bias, tune):
    M = A.shape[0]
    N = B.shape[1]
    return torch.empty((M, N), dtype=A.dtype, device=A.device)


@torch.library.custom_op(_free("matmul_backward_c20569d3"), mutates_args=())
def _matmul_backward_operator(
    A: torch.Tensor, B: torch.Tensor, bias: torch.Tensor, C: torch.Tensor, dC: torch.Tensor,
    wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = matmul_backward(
        A,
        B,
        bias,
        C,
        dC,
        wanted=[name for name, each in zip(("dA", "dB", "dbias"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_matmul_backward_operator.register_fake
def _(A, B, bias, C, dC, wanted, tune):
    M = A.shape[0]
    K = A.shape[1]
    N = B.shape[1]
    found = (
        torch.empty((M, K), dtype=A.dtype, device=A.device),
        torch.empty((K, N), dtype=A.dtype, device=A.device),
        torch.empty((N,), dtype=A.dtype, device=A.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _matmul_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    A, B, bias, tune = inputs
    C = output
    ctx.save_for_backward(A, B, C)
    ctx.numbers = (tune,)
    ctx.like = _like(bias), _like(C)
    ctx.set_materialize_grads(False)


def _matmul_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    (dC,) = found
    A, B, C = ctx.saved_tensors
    (tune,) = ctx.numbers
    bias_like, C_like = ctx.like
    bias = _unread(*bias_like)
    if dC is None:
        dC = _zeros(*C_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2]]
    found = iter(_matmul_backward_operator(A, B, bias, C, dC, wanted, tune))
    dA, dB, dbias = (next(found) if each else None for each in wanted)
    return dA, dB, dbias, None


def _matmul_second(ctx, *found):
    raise RuntimeError(
        "matmul has no second derivative: its backward pass is derived once. Call backward "
        "without create_graph=True"
    )


_matmul_forward_operator.register_autograd(_matmul_gradients, setup_context=_matmul_keep)
_matmul_backward_operator.register_autograd(_matmul_second)


def matmul(A, B, bias, *, tune=True):
    """A matrix product with an epilogue: C = max(A B + bias, 0). Differentiable: gradients come
    from matmul_backward.

    Args:
        A: (M, K), float16, bfloat16 or float32, any strides.
        B: (K, N), float16, bfloat16 or float32, any strides.
        bias: (N,), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        C (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _matmul_forward_operator(A, B, bias, tune)

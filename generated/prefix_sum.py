# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def prefix_sum(x: Float[Array, "N"]):
#         P = zeros(N)
#         for i in range(0, N):
#             if i == 0:
#                 P[i] = x[i]  # S1: the first element starts the sum
#             else:
#                 P[i] = P[i - 1] + x[i]  # S2: every later one continues it
#         return P
#
# The steps from there to these kernels:
#   1. hand P on in a state: an iteration reads what the one before has set
#
# Where they end; the labels in the code are those of this nest:
#
#     def prefix_sum(x: Float[Array, "N"]):
#         P = zeros(N)
#         P_state = 0.0  # S4
#         for i in range(0, N):
#             if i == 0:
#                 P_state = x[i]  # S1: the first element starts the sum
#                 P[i] = P_state  # S5
#             else:
#                 P_state = P_state + x[i]  # S2: every later one continues it
#                 P[i] = P_state  # S6
#         return P
#
# Notes:
#   - the loop i runs one iteration at a time in each program: S5 looks at the state in between

import torch
import triton
import triton.language as tl


@triton.jit
def prefix_sum_kernel(
    x_ptr, P_ptr,
    stride_x_i,
    stride_P_i,
    N,
    INDEX: tl.constexpr,
):
    """A program does everything.

    Reads x (N,).
    Writes P (N,).
    """
    P_state = tl.full([], 0.0, tl.float32)  # S4
    # S5 looks at the state in between.
    for i in range(tl.cast(0, INDEX), N):
        P = tl.full([], 0.0, tl.float32)
        x_i = tl.load(x_ptr + i * stride_x_i, mask=i == 0, other=0.0)  # S1
        P_state = tl.where(i == 0, x_i.to(tl.float32), P_state)  # S1
        P = tl.where(i == 0, P_state, P)  # S5
        x_i_2 = tl.load(x_ptr + i * stride_x_i, mask=i != 0, other=0.0)  # S2
        P_state = tl.where(i != 0, P_state + x_i_2.to(tl.float32), P_state)  # S2
        P = tl.where(i != 0, P_state, P)  # S6
        tl.store(P_ptr + i * stride_P_i, P)  # S6


# Used where nothing is timed.
prefix_sum_kernel_default = triton.Config({}, num_warps=4, num_stages=1)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(prefix_sum_kernel, triton.JITFunction)
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


def _check_written(name, tensor):
    """Raise a ValueError where elements of a tensor that is written share their memory."""
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
        raise ValueError(f"{name} is written, and is an expanded tensor: pass a contiguous one")


def _output(name, given, shape, dtype, device):
    """Return the tensor given for an output, or a new one where it is None.

    Raises:
        ValueError: The shape, dtype or device is not that of the output, or elements share memory.
    """
    if given is None:
        return torch.empty(shape, dtype=dtype, device=device)
    if not isinstance(given, torch.Tensor):
        kind = type(given).__name__
        raise ValueError(f"out for {name} should be a torch.Tensor, and is a {kind}")
    found = (tuple(given.shape), given.dtype, given.device)
    if found != (shape, dtype, device):
        raise ValueError(
            f"out for {name} should be {shape}, {dtype}, on {device}; it is {found[0]}, {found[1]},"
            f" on {found[2]}"
        )
    _check_written(f"out for {name}", given)
    return given


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


def prefix_sum(x, *, out=None):
    """Run the listing prefix_sum on torch tensors.

    Args:
        x: (N,), float16, bfloat16 or float32, any strides.
        out: What P is written to; a new tensor by default. It shares no memory with an
            argument.

    Returns:
        P (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("x", x, 1, _FLOAT))
    N = x.shape[0]
    P = _output("P", out, (N,), x.dtype, x.device)
    index = _index_type(x, P)

    run = prefix_sum_kernel
    blocks = prefix_sum_kernel_default.all_kwargs()
    with torch.cuda.device_of(x):
        run[(1,)](
            x, P,
            *x.stride(),
            *P.stride(),
            N,
            INDEX=index,
            **blocks, enable_fp_fusion=True,
        )
    return P

"""Functions that an emitted launcher calls, as text; a module has those it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from looptrans.blocks.fitting import footprint

INTERPRETED = """\
# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance({kernel}, triton.JITFunction)
"""

ELEMENT_TYPES: Mapping[str, str] = {
    "float": "_FLOAT = (torch.float16, torch.bfloat16, torch.float32)",
    "int": "_INT = (torch.int32, torch.int64)",
    "bool": "_BOOL = (torch.bool,)",
}

_FITTED = '''\
def _fitted(config, footprint, width, sizes, device, most=MOST_HELD):
    """Return a configuration with fewer stages, then smaller blocks, until it fits a GPU.

    It fits where a program has room for its blocks, by an estimate, and a thread holds at most so
    many of their numbers.
    """
    if _INTERPRETED:
        return config
    driver = triton.runtime.driver.active
    room = driver.utils.get_device_properties(device)["max_shared_mem"] - SPARE
    most *= driver.get_current_target().warp_size * config.num_warps
    while True:
        shared, held = footprint(width, **{**sizes, **config.all_kwargs()})
        blocks, stages = dict(config.kwargs), config.num_stages
        largest = max(blocks, key=blocks.get)
        if shared <= room and held <= most:
            return config
        if held <= most and stages > 1:
            stages -= 1
        elif blocks[largest] > LEAST:
            blocks[largest] //= 2
        else:
            return config
        config = triton.Config(blocks, num_warps=config.num_warps, num_stages=stages)
'''
_FITTING = '''\
def _fitting(footprint, width):
    """Return what leaves out the configurations that do not fit a GPU."""

    def fitting(configs, sizes):
        where = (footprint, width, sizes, torch.cuda.current_device())
        # What is timed may hold more than what is not: the times tell.
        kept = [config for config in configs if _fitted(config, *where, MOST_TIMED) is config]
        return kept or [_fitted(configs[0], *where)]

    return fitting
'''
_TIMED = '''\
class _Timed(triton.Config):
    """A configuration that is timed; Triton keeps times under this text, so for each GPU apart."""

    def __str__(self):
        return f"{super().__str__()}, on {torch.cuda.get_device_name()}"
'''
_TUNED = '''\
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
'''
_DESCRIBED = '''\
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
'''
_IS_COPIED = '''\
def _is_copied(tensor):
    """Tell whether the GPU, Hopper or later, can copy blocks of a tensor by itself."""
    if torch.version.hip or torch.cuda.get_device_capability(tensor.device)[0] < 9:
        return False
    if max(tensor.shape) >= 2**31:
        return False
    *outer, last = tensor.stride()
    steps = (tensor.data_ptr(), *(stride * tensor.element_size() for stride in outer))
    return last == 1 and all(step > 0 and step % 16 == 0 for step in steps)
'''
_SCRATCH = '''\
def _scratch(size, alignment, stream):
    """Return memory in which a program tells the GPU of arrays; Triton asks for it."""
    return torch.empty(size, dtype=torch.int8, device="cuda")
'''


def _numbered(text: str) -> str:
    """Return a text with the numbers of `blocks.footprint` in place of their names."""
    names = "MOST_HELD|MOST_TIMED|SPARE|LEAST"
    return re.sub(names, lambda word: str(getattr(footprint, word[0])), text)


# What configurations are chosen with.
FITTING: Mapping[str, str] = {
    "_Timed": _TIMED,
    "_Tuned": _TUNED,
    "_Described": _DESCRIBED,
    "_is_copied": _IS_COPIED,
    "_scratch": _SCRATCH,
    "_fitted": _numbered(_FITTED),
    "_fitting": _numbered(_FITTING),
}

# In the order in which a module defines them.
FUNCTIONS: Mapping[str, str] = {
    "_check_tensors": '''\
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
''',
    "_check_shape": '''\
def _check_shape(name, tensor, expected, text):
    """Raise a ValueError unless a tensor has the expected shape; None is any extent."""
    shape = tuple(tensor.shape)
    if any(want is not None and want != got for want, got in zip(expected, shape)):
        wanted = f"{expected}, that is {text}"
        raise ValueError(f"{name} should have the shape {wanted}; it has {shape}")
''',
    "_check_size": '''\
def _check_size(name, value, least):
    """Raise a ValueError unless a value is an integer, and at least `least` unless that is None."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} should be an int, and is {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name} should be at least {least}, and is {value}")
''',
    "_processors": '''\
def _processors(device):
    """Return how many multiprocessors a device has; the interpreter is one."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
''',
    "_real": '''\
def _real(name, value):
    """Return a value as a float, or raise a ValueError where it is no real number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} should be a real number, and is {value!r}") from None
''',
    "_seed": '''\
def _seed(name, value):
    """Return a seed as the integer of 64 bits, signed, that is the same, or raise a ValueError."""
    try:
        number = value if isinstance(value, int) else value.__index__()
    except (AttributeError, TypeError):
        raise ValueError(f"{name} should be an int, and is {value!r}") from None
    return number if -(2**63) <= number < 2**63 else (number + 2**63) % 2**64 - 2**63
''',
    "_check_written": '''\
def _check_written(name, tensor):
    """Raise a ValueError where elements of a tensor that is written share their memory."""
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
        raise ValueError(f"{name} is written, and is an expanded tensor: pass a contiguous one")
''',
    "_output": '''\
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
''',
    "_wanted": '''\
def _wanted(wanted, gradients):
    """Return the names of the gradients that are asked for as a set."""
    if wanted is None:
        return set(gradients)
    if isinstance(wanted, str) or not wanted or not set(wanted) <= set(gradients):
        raise ValueError(f"wanted should name some of {', '.join(gradients)}, and is {wanted!r}")
    return set(wanted)
''',
    "_given": '''\
def _given(*tensors):
    """Return the tensors that are not None."""
    return [tensor for tensor in tensors if tensor is not None]
''',
    "_strides": '''\
def _strides(tensor, *axes):
    """Return strides of a tensor; where it is None, zeros, which nothing looks at."""
    return [0 if tensor is None else tensor.stride(axis) for axis in axes]
''',
    "_free": '''\
def _free(name):
    """Return a name that no operator of torch has: a copy of this module may have been loaded."""
    found, copy = name, 1
    while hasattr(torch.ops.looptrans, found):
        copy += 1
        found = f"{name}_{copy}"
    return f"looptrans::{found}"
''',
    "_like": '''\
def _like(tensor):
    """Return what `_unread` and `_zeros` make a tensor of."""
    return tensor.shape, tensor.dtype, tensor.device
''',
    "_unread": '''\
def _unread(shape, dtype, device):
    """Return a tensor whose contents nothing looks at, in the memory of one element."""
    return torch.empty((), dtype=dtype, device=device).expand(shape)
''',
    "_zeros": '''\
def _zeros(shape, dtype, device):
    """Return zeros in the memory of one element."""
    return torch.zeros((), dtype=dtype, device=device).expand(shape)
''',
    "_number": '''\
def _number(name, value):
    """Return a number as a float, also where it is a tensor that asks for a gradient."""
    return _real(name, value.detach() if isinstance(value, torch.Tensor) else value)
''',
    "_handle": '''\
def _handle(value):
    """Return a number that may receive a gradient; None where it is no tensor."""
    return value if isinstance(value, torch.Tensor) else None
''',
    "_outputs": '''\
def _outputs(out, count):
    """Return the tensors given for the outputs, or as many times None."""
    if out is None:
        return (None,) * count
    if not isinstance(out, (tuple, list)) or len(out) != count:
        raise ValueError(f"out should be a tuple of {count} tensors")
    return tuple(out)
''',
    "_index_type": '''\
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
''',
}

"""`looptrans inspect`: kernels compiled for a GPU that need not be there."""

from __future__ import annotations

import argparse
import sys

from looptrans.cli.terminal import refused, style
from looptrans.cli.verb import (
    Verbs,
    add_format,
    add_listing,
    add_passes,
    add_sizes,
    add_verb,
    element_type,
    parameters,
)

TARGETS = ("cuda:80", "cuda:89", "cuda:90", "cuda:100", "cuda:120", "hip:gfx942")
DEFAULT = "cuda:90"
DTYPES = ("bfloat16", "float16", "float32")

DESCRIPTION = """\
Says of each kernel how many registers, spilled bytes, bytes of shared memory and matrix
instructions it has and how many programs run side by side on one SM (CU), and of each innermost
loop the exponentials and divisions of one time around, in instructions of a warp. ! marks what
speaks against running it: spills, more shared memory than there is, a wait after each matrix
instruction, uniform registers that nothing has set.

The configuration is the one that is used where nothing is timed, made to fit the GPU; --config
changes it. --configs compiles those that are timed on a GPU, in a table: what the loop with most
matrix instructions does (beside: exponentials while one runs), and what is left out unseen since
it has no room for its blocks, by the estimate a launch makes too. Arrays are
contiguous and aligned, sizes that a kernel must know are 64 and then 128, others multiples of 16,
unless --sizes says otherwise. --pass backward compiles the kernels of the gradients, as they are
where all gradients are asked for; --pass both those of the forward pass before them. --split
compiles those of `emit --split`. No GPU is needed. A kernel that the compiler refuses is named with
the reason; the exit status is then 1, and 3 where a part of the tool chain is not installed."""
EXAMPLES = """
looptrans inspect specs/attention_naive.py
looptrans inspect specs/attention_naive.py --sizes D=128,E=128 --config num_warps=4
looptrans inspect specs/matmul.py --target cuda:80 --target hip:gfx942 --dtype float16
looptrans inspect specs/softmax.py --format json
looptrans inspect specs/attention_naive.py --pass backward
looptrans inspect specs/attention.py --split
looptrans inspect specs/attention_naive.py --sizes D=128,E=128 --configs
"""


def add_inspect(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "inspect",
        inspect,
        summary="compile the kernels for a GPU that need not be there",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser)
    add_passes(parser, "which kernels")
    parser.add_argument(
        "--split",
        action="store_true",
        help="the kernels that compute a loop in parts besides, as in emit",
    )
    parser.add_argument(
        "--target",
        action="append",
        choices=TARGETS,
        help="the GPU, may be given more than once (default: cuda:90)",
    )
    parser.add_argument(
        "--dtype",
        type=element_type,
        choices=DTYPES,
        default=DTYPES[0],
        help=f"the element type of the arrays (default: {DTYPES[0]})",
    )
    add_sizes(parser)
    parser.add_argument(
        "--config",
        type=parameters,
        action="extend",
        default=[],
        metavar="BLOCK_I=128,num_warps=8",
        help="sizes of blocks, num_warps and num_stages in place of the default ones",
    )
    parser.add_argument(
        "--configs",
        action="store_true",
        help="compile all configurations that are timed on a GPU, not the default ones",
    )
    add_format(parser, "text", "json")


def inspect(arguments: argparse.Namespace) -> int:
    """Print what was measured."""
    from looptrans.emit.backward import emitted_with_backward
    from looptrans.emit.listing import emitted
    from looptrans.emit.refusal import Refused
    from looptrans.emit.split import emitted_split
    from looptrans.frontend import load
    from looptrans.reports.inspect import configurations_text, inspection_json, inspection_text
    from looptrans.runtime.inspecting.arguments import BadRequest
    from looptrans.runtime.inspecting.inspect import (
        ToolsMissing,
        backward_module,
        forward_module,
        split_module,
    )
    from looptrans.runtime.inspecting.inspect import inspect as inspected

    if arguments.split and arguments.which != "forward":
        return refused("--split is about the forward pass: leave --pass out")
    for name, value in (*arguments.sizes, *arguments.config):
        if not isinstance(value, int) or not 0 < value < 2**31:
            return refused(f"{name}={value} is no integer above 0")
    if arguments.configs and arguments.config:
        return refused("--configs compiles all there are: leave out --config")
    try:
        program = load(arguments.file)
        if arguments.split:
            module = split_module(emitted_split(program))
        elif arguments.which == "forward":
            module = forward_module(emitted(program))
        else:
            made = emitted_with_backward(program)
            module = backward_module(made, both=arguments.which == "both")
        found = inspected(
            module,
            list(dict.fromkeys(arguments.target or [DEFAULT])),
            arguments.dtype,
            dict(arguments.sizes),
            dict(arguments.config),
            every=arguments.configs,
        )
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    except BadRequest as error:
        return refused(error)
    except ToolsMissing as error:
        return refused(error, status=3)
    if arguments.format == "json":
        print(inspection_json(found), end="")
    else:
        shown = configurations_text if arguments.configs else inspection_text
        print(shown(found, style()), end="")
    if not found.refused:
        return 0
    return 3 if all(refusal.missing for refusal in found.refused) else 1

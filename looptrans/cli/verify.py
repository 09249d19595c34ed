"""`looptrans verify`: emitted kernels against a float64 execution of the listing itself.

Gradients are compared with what torch's autograd makes of the listing's statements.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from looptrans.cli.terminal import clear_progress, refused, show_progress, style
from looptrans.cli.verb import (
    FORMS,
    Verbs,
    add_format,
    add_gradients,
    add_listing,
    add_passes,
    add_verb,
    element_type,
    parameters,
    seed,
)

if TYPE_CHECKING:
    from looptrans.ir.program import Program

DTYPES = ("float32", "float16", "bfloat16")

DESCRIPTION = """\
Emits the kernels of a listing, runs them, and compares every output with the listing executed in
float64, by the Frobenius norm of the difference over that of the result. In float32 the error may
be 2e-6, or twice that of the listing executed in float32; in 16 bits twice that of the listing
executed in float32 on the same inputs and rounded once, or that of one rounding. (There the sums of
the listing may be added in either order, and its inputs and operations be off by a rounding: where
few elements decide, the error of one is luck. What the kernels work out twice may be off by up to
eight times as much.) A result that is 0 throughout is met exactly, but for what such roundings make
of it; infinities stand where they should, and where the listing's own execution is nan nothing is
asked, except that a row that is masked throughout gives what no iterations give. At sizes that make
it divide by zero, as 1 / sqrt(E) does where E is 0, kernels may give nan for any number.

Outputs are poisoned before, so that what nobody writes shows; every tensor lies between guard zones
that must stay what they were, as must inputs that the listing does not write. Inputs are normal,
ten times as large (there with odd strides), and with maxima that rise along every dimension. The
interpreter runs one program after the other; so every load and store of every program is written
down there, and what a GPU might do in another order, between programs or between the threads of
one, is an error, as is a load of what nobody has written.

Sizes are found: small odd ones, some beyond blocks, some in whole blocks, all 1, and each of them 0
in turn, as far as the contracts allow. --sizes names one set instead, and may be given again; what
a set leaves out is a small number. Without a GPU the kernels run in Triton's interpreter, which
cannot do bfloat16: the exit status is 3 where that is asked for. A listing for which there are no
kernels is refused with the reason; the exit status is then 1, as where a run fails.

--pass backward runs the forward and the backward kernels of `emit --pass backward` on random
incoming gradients, and compares each gradient with that of torch's autograd over the listing's
statements in float64; at small sizes also with central differences of the listing. Real parameters
have gradients too. In float32 the error may be 5e-6, or three times that of autograd in float32; in
16 bits three times that of autograd in float32 on the same inputs, rounded once, or one rounding.
Added to it is what no backward kernel can help: how far the gradients move because what the forward
saves is rounded to the type it is kept in. A gradient whose terms cancel is measured against its
terms, one to which no output leads is exactly 0 (one times the difference of equal numbers, but for
what such roundings make of that), and where max is decided between equal numbers any subgradient
will do. Incoming gradients have odd strides with the inputs that are ten times as large, and are
expanded (stride 0) with those that rise. Each gradient is also asked for alone.

--pass both does one after the other. A listing without a backward pass is refused by `backward`
with the reason; `both` verifies the forward kernels, and reports the reason beside them. The exit
status is 1 in either case.

--split verifies the kernels of `emit --split`, for several numbers of parts; --sizes may name the
number as parts=5."""
EXAMPLES = """
looptrans verify specs/matmul.py
looptrans verify specs/attention_naive.py --sizes M=113,N=203 --sizes M=1,N=77 --dtype float16
looptrans verify specs/softmax.py --seed 7 --format json
looptrans verify specs/attention_naive.py --pass both --sizes M=33,N=17,E=16,D=8
looptrans verify specs/attention.py --split --sizes B=1,H=2,M=1,N=203,E=16,D=8,parts=5
"""


def add_verify(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "verify",
        verify,
        summary="compare emitted kernels with the listing executed in float64",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser)
    add_passes(parser, "which kernels")
    add_gradients(parser)
    parser.add_argument(
        "--split",
        action="store_true",
        help="the kernels that compute a loop in parts, as in emit",
    )
    parser.add_argument(
        "--sizes",
        type=parameters,
        action="append",
        metavar="M=4,N=5",
        help="one set of sizes, and of real parameters; may be given more than once",
    )
    parser.add_argument(
        "--dtype",
        type=_dtypes,
        metavar="float32,float16",
        help=f"types of floating-point arrays, of {', '.join(DTYPES)} (default: all there can be)",
    )
    parser.add_argument("--device", help="a torch device (default: a GPU, or else the interpreter)")
    parser.add_argument("--seed", type=seed, default=0, help="of random inputs (default: 0)")
    add_format(parser, "text", "json")


def _dtypes(text: str) -> tuple[str, ...]:
    found = tuple(element_type(part.strip()) for part in text.split(","))
    for name in found:
        if name not in DTYPES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(DTYPES)}")
    return found


def verify(arguments: argparse.Namespace) -> int:
    """Run the kernels and print the errors."""
    from looptrans.emit.refusal import Refused
    from looptrans.frontend import load
    from looptrans.ir.diagnostic import ListingError, Mistake
    from looptrans.ir.source import Source
    from looptrans.reports.verify import verification_json, verification_text
    from looptrans.runtime.running.device import NoDevice, prepare_device

    program = load(arguments.file)
    mistake_in = _mistake(program, arguments)
    if mistake_in:
        return refused(mistake_in)
    try:
        device = prepare_device(arguments.device)
        # It imports torch, and so what can be missing.
        from looptrans.runtime.verifying.backward import verify_pass
        from looptrans.runtime.verifying.split import verify_split
        from looptrans.runtime.verifying.verify import CannotVerify, NeedsGpu
    except NoDevice as error:
        return refused(error)
    sizes = None if arguments.sizes is None else [dict(each) for each in arguments.sizes]
    try:
        if arguments.split:
            report = verify_split(
                program, sizes, arguments.dtype, device, arguments.seed, _progress()
            )
        else:
            report = verify_pass(
                program,
                arguments.which,
                sizes,
                arguments.dtype,
                device,
                arguments.seed,
                _progress(),
                arguments.of,
                arguments.form,
            )
    except (Refused, CannotVerify) as refusal:
        clear_progress()
        print(refusal, file=sys.stderr)
        return 3 if isinstance(refusal, NeedsGpu) else 1
    except Mistake as mistake:
        clear_progress()
        source = program.source if mistake.span is not None else Source("", "")
        raise ListingError([mistake], source) from None
    clear_progress()
    if arguments.format == "json":
        print(verification_json(report), end="")
    else:
        print(verification_text(report, style()), end="")
    return 0 if report.passed else 1


def _mistake(program: Program, arguments: argparse.Namespace) -> str:
    """Say what is wrong with --of and --form, if anything."""
    from looptrans.ir.outputs import outputs

    if arguments.which == "forward" and (arguments.of or arguments.form != FORMS[0]):
        return "--of and --form are about a backward pass: add --pass backward"
    if arguments.split and arguments.which != "forward":
        return "--split is about the forward pass: leave --pass out"
    for each in arguments.sizes or () if arguments.split else ():
        parts = dict(each).get("parts", 1)
        if not isinstance(parts, int) or parts < 1:
            return f"--sizes: parts={parts} is no number of parts: give 1 or more"
    known = [output.name for output in outputs(program)]
    for name in arguments.of or ():
        if name not in known:
            return f"{program.name} has no output {name}; it has {', '.join(known) or 'none'}"
    return ""


def _progress() -> Callable[[str], None] | None:
    """Return what shows the current step on a terminal; None where there is no terminal."""
    return show_progress if sys.stderr.isatty() else None

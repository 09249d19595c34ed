"""`looptrans verify`: emitted kernels against a float64 execution of the listing itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from looptrans.cli.verb import Verbs, add_format, add_listing, add_verb, parameters

DTYPES = ("float32", "float16", "bfloat16")

DESCRIPTION = """\
Emits the kernels of a listing, runs them, and compares every output with the listing executed in
float64, by the Frobenius norm of the difference over that of the result. In float32 the error may
be 2e-6, or twice that of the listing executed in float32; in 16 bits twice that of the listing
executed in float32 on the same inputs and rounded once, or that of one rounding. (There the sums of
the listing may be added in either order: where few elements decide, the error of one is luck.) A
result that is 0 throughout is met exactly, infinities stand where they should, and where the
listing's own execution is nan nothing is asked, except that a row that is masked throughout gives
what no iterations give.

Outputs are poisoned before, so that what nobody writes shows; every tensor lies between guard zones
that must stay what they were, as must inputs that the listing does not write. Inputs are normal,
ten times as large (there with odd strides), and with maxima that rise along every dimension.

Sizes are found: small odd ones, some beyond blocks, some in whole blocks, all 1, and each of them 0
in turn, as far as the contracts allow. --sizes names one set instead, and may be given again; what
a set leaves out is a small number. Without a GPU the kernels run in Triton's interpreter, which
cannot do bfloat16. A listing for which there are no kernels is refused with the reason; the exit
status is then 1, as where a run fails."""
EXAMPLES = """
looptrans verify specs/matmul.py
looptrans verify specs/attention_naive.py --sizes M=113,N=203 --sizes M=1,N=77 --dtype float16
looptrans verify specs/softmax.py --seed 7 --format json
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
    parser.add_argument(
        "--pass",
        dest="which",
        type=_pass,
        default="forward",
        metavar="{forward}",
        help="which kernels (default: forward)",
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
    parser.add_argument("--seed", type=_seed, default=0, help="of random inputs (default: 0)")
    add_format(parser, "text", "json")


def _pass(text: str) -> str:
    if text in ("backward", "both"):
        raise argparse.ArgumentTypeError("the backward pass cannot be emitted yet; use forward")
    if text != "forward":
        raise argparse.ArgumentTypeError(f"{text!r} is not forward")
    return text


def _dtypes(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    for name in found:
        if name not in DTYPES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(DTYPES)}")
    return found


def _seed(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 0 to 2**31 - 1")
    return number


def verify(arguments: argparse.Namespace) -> int:
    """Run the kernels and print the errors."""
    from looptrans.emit.refusal import Refused
    from looptrans.frontend import load
    from looptrans.ir.diagnostic import ListingError, Mistake
    from looptrans.ir.source import Source
    from looptrans.reports.style import Style
    from looptrans.reports.verify import verification_json, verification_text
    from looptrans.runtime.device import NoDevice, prepare_device

    program = load(arguments.file)
    try:
        device = prepare_device(arguments.device)
        # It imports torch, and so what can be missing.
        from looptrans.runtime.verify import CannotVerify
        from looptrans.runtime.verify import verify as verified
    except NoDevice as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sizes = None if arguments.sizes is None else [dict(each) for each in arguments.sizes]
    try:
        report = verified(program, sizes, arguments.dtype, device, arguments.seed, _progress())
    except (Refused, CannotVerify) as refusal:
        _clear()
        print(refusal, file=sys.stderr)
        return 1
    except Mistake as mistake:
        _clear()
        source = program.source if mistake.span is not None else Source("", "")
        raise ListingError([mistake], source) from None
    _clear()
    if arguments.format == "json":
        print(verification_json(report), end="")
    else:
        style = Style(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
        print(verification_text(report, style), end="")
    return 0 if report.passed else 1


def _progress() -> Callable[[str], None] | None:
    """Return what shows the current step on a terminal; None where there is no terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda text: print(f"\r\x1b[K{text[:78]}", end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

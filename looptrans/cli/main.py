"""The `looptrans` command: its verbs, its exit status, and how it fails."""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import os
import sys
from collections.abc import Callable
from typing import TypeAlias

from looptrans import __version__
from looptrans.cli.analysis import add_claims, add_ddg, add_deps, add_loops, add_report, add_scc
from looptrans.cli.bench import add_bench
from looptrans.cli.derive import add_derive
from looptrans.cli.emit import add_emit
from looptrans.cli.explain import add_explain
from looptrans.cli.inspect import add_inspect
from looptrans.cli.recheck import add_recheck
from looptrans.cli.run import add_run
from looptrans.cli.show import add_show
from looptrans.cli.terminal import FAILED, FINE
from looptrans.cli.transform import add_apply, add_check
from looptrans.cli.variant import add_variant
from looptrans.cli.verb import Verbs
from looptrans.cli.verify import add_verify
from looptrans.ir.diagnostic import ListingError

INTERRUPTED = 130
# What the system says of a disk that takes no more of the output.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# Listings and facts are many small objects that stay: to look for cycles among them all the time
# costs a tenth of a derivation, and finds next to nothing.
GARBAGE = (100_000, 20, 100)

AddVerb: TypeAlias = Callable[[Verbs], None]

# One line for each verb, in the order of `looptrans --help`. These modules parse arguments only;
# what a verb needs is imported when it runs, so that `show` loads neither numpy nor islpy.
VERBS: tuple[AddVerb, ...] = (
    add_show,
    add_deps,
    add_ddg,
    add_scc,
    add_loops,
    add_claims,
    add_report,
    add_check,
    add_apply,
    add_derive,
    add_recheck,
    add_emit,
    add_verify,
    add_inspect,
    add_bench,
    add_run,
    add_variant,
    add_explain,
)

EPILOG = """\
FILE is a listing; FILE::FUNCTION names one function of it, FILE::Class.method a method, and
- reads standard input.

exit status:
  0  fine, legal
  1  a negative verdict: illegal, claim refuted, verification failed
  2  usage or listing error
  3  unknown

examples:
  looptrans show specs/flash_forward.py
  looptrans report specs/flash_forward.py
  looptrans check specs/stencil.py "interchange(i, j)"
  looptrans derive specs/attention_naive.py
  looptrans derive specs/attention_naive.py --to backward
  looptrans emit specs/attention_naive.py -o kernels
  looptrans emit specs/attention_naive.py --pass both -o kernels
  looptrans verify specs/attention_naive.py --pass both
  looptrans inspect specs/attention_naive.py --target cuda:90
  looptrans run specs/matmul.py --sizes M=2,N=3,K=4
  looptrans explain E012
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="looptrans",
        description="Write the loops. Read the proof. Run the kernel.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"looptrans {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    for add in VERBS:
        add(verbs)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: The arguments after the program's name; by default those of this process.
    """
    _print_anything()
    gc.set_threshold(*GARBAGE)
    try:
        arguments = _parsed(_listings_first(sys.argv[1:] if argv is None else argv))
        status = arguments.run(arguments)
        sys.stdout.flush()
    except SystemExit as end:  # argparse has printed help (0) or a usage error (2)
        return end.code if isinstance(end.code, int) else FAILED
    except ListingError as error:
        _tell(error.render())
        return FAILED
    except BrokenPipeError:
        _close_stdout()
        return FINE
    except OSError as error:
        number = error.errno
        if error.filename is not None or number is None or number not in NO_ROOM:
            return _internal_error(error)
        _close_stdout()
        _tell(
            f"error: cannot write the output: {os.strerror(number).lower()}\n"
            "  help: make room where it goes, or write it elsewhere"
        )
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # nobody is to see a traceback, whatever is wrong in here
        return _internal_error(error)
    return int(status)


def _internal_error(error: Exception) -> int:
    if os.environ.get("LOOPTRANS_DEBUG"):
        raise error
    text = " ".join(str(error).split())[:200]
    _tell(
        f"internal error: {type(error).__name__}: {text}; please report it with the listing "
        "(LOOPTRANS_DEBUG=1 shows where)"
    )
    return FAILED


def _tell(text: str) -> None:
    """Print an error where somebody still reads them; the exit status stands in any case."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _parsed(argv: list[str]) -> argparse.Namespace:
    """Return the arguments; transformations may stand on either side of options.

    argparse itself takes a list of arguments only where it finds them next to one another.
    """
    top = parser()
    arguments, rest = top.parse_known_args(argv)
    takes_more = hasattr(arguments, "transformations")
    if rest and not (takes_more and all("(" in each for each in rest)):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.transformations += rest
    return arguments


def _listings_first(argv: list[str]) -> list[str]:
    """Let `-::FUNCTION`, a function of standard input, pass for a listing and not for an option.

    argparse takes what has a space in it for an argument; `add_listing` removes it again.
    """
    return [f" {each}" if each.startswith("-::") else each for each in argv]


def _print_anything() -> None:
    """Let names and comments print whatever the terminal's encoding.

    A stream that the caller has closed (`>&-`, `<&-`) takes everything and keeps nothing, and has
    nothing to read.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _close_stdout() -> None:
    """The reader has gone (`| head`); keep Python from complaining when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

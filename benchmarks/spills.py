"""Whether any listing's kernels spill in the configurations that are used where nothing is timed.

    .venv/bin/python -m benchmarks.spills                 all of specs/, cuda:90, bf16
    .venv/bin/python -m benchmarks.spills FILE … --target cuda:80

Every listing is compiled for head sizes 64 and 128, the forward and the backward pass; no GPU is
needed, but some minutes are. Prints what speaks against a kernel; the exit status is 1 where
something does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.frontend import load
from looptrans.runtime.inspecting.inspect import Module, backward_module, forward_module, inspect
from looptrans.runtime.inspecting.job import Refusal

SPECS = Path(__file__).parent.parent / "specs"


def module_of(path: str) -> Module | None:
    """Return the module of a listing, both passes where it has both; None where it has none."""
    program = load(path)
    try:
        return backward_module(emitted_with_backward(program), both=True)
    except Refused:
        pass
    try:
        return forward_module(emitted(program))
    except Refused:
        return None


def main() -> int:
    """Compile, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="*", default=sorted(map(str, SPECS.glob("*.py"))))
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--dtype", default="bfloat16")
    arguments = parser.parse_args()
    wrong = 0
    for path in arguments.file:
        module = module_of(path)
        name = Path(path).stem
        if module is None:
            print(f"{name}: no kernels", flush=True)
            continue
        found = inspect(module, [arguments.target], arguments.dtype, {}, {})
        lines = []
        for each in found.kernels:
            reasons = each.gates
            if isinstance(each.result, Refusal):
                reasons = (f"not compiled: {each.result.reason}",)
            numbers = {**each.sizes, **each.config.blocks}
            shown = " ".join(f"{name}={number}" for name, number in numbers.items())
            lines += [f"  {each.kernel} {shown}: {reason}" for reason in reasons]
        wrong += len(lines)
        print(f"{name}: {len(found.kernels)} compiled, {len(lines)} complaints", flush=True)
        print("\n".join(lines), end="\n" * bool(lines), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""FlexAttention's own Triton templates, as torch has them, filled in for one case.

They are read from the torch that is installed and kept nowhere. What torch works out while it
compiles (the arguments, the strides, the score and mask as text) is filled in here for tensors
(4, 16, 4096, D) in bfloat16, so that a kernel can be compiled where there is no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Pass: TypeAlias = Literal["forward", "backward"]

SHAPE = (4, 16, 4096)
BLOCK_OF_MASK = 128
FILES = {"forward": "flex_attention.py.jinja", "backward": "flex_backwards.py.jinja"}
HEAD = (
    "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A score and a mask, as the text of what a template is given.

    Attributes:
        score: The score from `{s}`, the row `{m}` and the key `{n}` of head `{h}`, put in `{o}`.
        slope: Its derivative times `{g}`.
        mask: Whether a row sees a key; None where every row sees all.
        argument: A tensor that the score reads; empty for none.
    """

    score: str = "{o} = {s}"
    slope: str = "{o} = {g}"
    mask: str | None = None
    argument: str = ""


BIAS = f"arg_BIAS + {{h}} * {SHAPE[2] ** 2} + {{m}} * {SHAPE[2]} + {{n}}"
CASES = {
    "causal": Case(mask="{m} >= {n}"),
    "window": Case(mask="({m} >= {n}) & ({m} - {n} <= 1024)"),
    "bias": Case(score=f"{{o}} = {{s}} + tl.load({BIAS}).to(tl.float32)", argument="arg_BIAS"),
    "soft cap": Case(
        score="{o} = libdevice.tanh({s} * 0.02) * 50.0",
        slope="tmp_t = libdevice.tanh({s} * 0.02)\n{o} = {g} * 50.0 * (1.0 - tmp_t * tmp_t) * 0.02",
    ),
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A kernel of FlexAttention.

    Attributes:
        text: A module with the function `flex_kernel`.
        signature: The type of each of its arguments, as Triton writes it.
    """

    text: str
    signature: dict[str, str]


def templates() -> Path:
    """Return where torch keeps its templates."""
    import torch

    return Path(torch.__file__).parent / "_inductor" / "kernel" / "flex" / "templates"


def rendered(which: Pass, name: str, size: int) -> Rendered:
    """Return a kernel for one case, in the blocks that torch uses on an H100.

    Args:
        which: The pass.
        name: One of `CASES`.
        size: The head size.

    Raises:
        jinja2.UndefinedError: The templates of this torch want something else.
    """
    import jinja2

    folder = templates()
    parts = (FILES[which], "utilities.py.jinja", "common.py.jinja")
    source = "\n".join((folder / part).read_text() for part in parts)
    filling = _Filling(which, CASES[name], size)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["indent_except_first"] = _indented
    text = environment.from_string(source).render(**filling.names(), **filling.options())
    numbers = {"arg_LSE", "arg_MAX", "arg_DELTA"}
    signature = {
        each: "*fp32" if each in numbers else "*i32" if _is_index(each) else "*bf16"
        for each in filling.arguments
    }
    return Rendered(HEAD + text, signature)


def _is_index(name: str) -> bool:
    return name.endswith(("_BLKS", "_IDX"))


def _indented(text: str, depth: int) -> str:
    """Indent all lines but the first; those that are so far in already stay."""
    first, *rest = text.split("\n")
    margin = "    " * depth
    return "\n".join(
        [first, *(line if line.startswith(margin) else margin + line for line in rest)]
    )


class _Filling:
    """What the templates ask for."""

    def __init__(self, which: Pass, case: Case, size: int) -> None:
        self.which, self.case, self.size = which, case, size
        self.arguments: list[str] = []

    def options(self) -> dict[str, Any]:
        size, masked = self.size, self.case.mask is not None
        sparse = BLOCK_OF_MASK if masked else 2**30
        blocks = (
            {"BLOCK_M": 128, "BLOCK_N": 128 if size == 64 else 64}
            if self.which == "forward"
            else {"BLOCK_M1": 64, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 64}
        )
        return {
            "SM_SCALE": size**-0.5,
            "FLOAT32_PRECISION": "'ieee'",
            "IS_DIVISIBLE": True,
            "SAFE_HEAD_DIM": True,
            "QK_HEAD_DIM": size,
            "QK_HEAD_DIM_ROUNDED": size,
            "V_HEAD_DIM": size,
            "V_HEAD_DIM_ROUNDED": size,
            "PRESCALE_QK": False,
            "ROWS_GUARANTEED_SAFE": False,
            "BLOCKS_ARE_CONTIGUOUS": False,
            "WRITE_DQ": True,
            "OUTPUT_LOGSUMEXP": True,
            "OUTPUT_MAX": False,
            "GQA_SHARED_HEADS": 1,
            "HAS_FULL_BLOCKS": masked,
            "INDEX_DTYPE": "tl.int32",
            "USE_TMA": False,
            "SPARSE_Q_BLOCK_SIZE": sparse,
            "SPARSE_KV_BLOCK_SIZE": sparse,
            **blocks,
        }

    def names(self) -> dict[str, Any]:
        """Return the functions that the templates call."""
        return {
            "def_kernel": self.def_kernel,
            "gen_argdefs": lambda: ", ".join(self.arguments),
            "gen_defines": self.gen_defines,
            "stride": self.stride,
            "size": self.extent,
            "modification": self.modification,
            "store_output": self.store_output,
        }

    def gen_defines(self) -> str:
        return "\n".join(f"{name} : tl.constexpr = {v}" for name, v in self.options().items())

    def def_kernel(self, *names: str) -> str:
        extra = [self.case.argument] if self.case.argument else []
        self.arguments = [*(f"arg_{name}" for name in names), "arg_OUT", *extra]
        lines = [*self.gen_defines().split("\n"), *(f"{name} = arg_{name}" for name in names)]
        head = f"@triton.jit\ndef flex_kernel({', '.join(self.arguments)}):\n"
        return head + "".join(f"    {line}\n" for line in lines)

    def stride(self, name: str, axis: int | None = None) -> str:
        _, heads, length = SHAPE
        count = length // BLOCK_OF_MASK
        strides = {
            "NUM_BLKS": (count, count, 1),
            "IDX": (count * count, count * count, count, 1),
        }
        ends = next((each for each in strides if name.endswith(each)), None)
        own = (heads * length * self.size, length * self.size, self.size, 1)
        found = own if ends is None else strides[ends]
        return str(found) if axis is None else str(found[axis])

    def extent(self, name: str, axis: int) -> str:
        whole = (
            (1, 1, SHAPE[2] // BLOCK_OF_MASK) if _is_index(f"arg_{name}") else (*SHAPE, self.size)
        )
        return str(whole[axis])

    def modification(self, subgraph_number: int, output_name: str, **given: Any) -> str:
        kinds = ("score", "mask") if self.which == "forward" else ("score", "slope", "mask", "")
        kind = kinds[subgraph_number]
        if not kind:
            return "pass"
        mask = self.case.mask
        seen = "{o} = tl.full([1], True, tl.int1)" if mask is None else f"{{o}} = {mask}"
        text = {"score": self.case.score, "slope": self.case.slope, "mask": seen}[kind]
        own = {key: given.get(key) for key in ("h", "m", "n")}
        return text.format(
            o=output_name, s=given.get("score"), g=given.get("grad_score_mod"), **own
        )

    def store_output(self, index: tuple[str, ...], value: str, mask: str, **_: Any) -> str:
        steps = [self.stride("OUT", axis) for axis in range(4)]
        where = " + ".join(f"{at} * {step}" for at, step in zip(index, steps, strict=True))
        return f"tl.store(arg_OUT + {where}, {value}, {mask})"

"""Renaming everything in a listing, and comparing what is emitted for both under the name map."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# What a listing does not name itself.
LANGUAGE = frozenset(
    re.findall(
        r"\w+",
        "def for in if else return assert and or not range parallel private zeros full ones empty"
        " sum max min all exp exp2 log sqrt abs tanh where inf float int bool Float Int Bool Array"
        " dtype float32 float16 int32 True False uniform Const stop_gradient"
        " Int8 UInt8 Float8e4m3fn Float8e5m2",
    )
)
_LABEL = re.compile(r"#\s*([A-Z][A-Za-z_]*\d+)\b")
_WORD = re.compile(r"[^\W\d]\w*")
_TEXT = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}

Token = tuple[int, str]


@dataclass(frozen=True)
class Renamed:
    """A listing under other names.

    Attributes:
        before: The listing, its comments cut down to labels.
        after: The same under the new names.
        names: The new name of each name, in order of first appearance.
        loops: The names of loop variables.
    """

    before: str
    after: str
    names: dict[str, str]
    loops: frozenset[str]


def renamed(text: str, scheme: str) -> Renamed:
    """Rename everything that a listing names: variables, arrays, sizes, labels and itself.

    Args:
        text: The listing, without a docstring.
        scheme: `short` names of one letter, `long` ones, or `reversed`: their alphabetical order is
            the opposite of what it was.
    """
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    found: dict[str, None] = {}
    labels: dict[str, None] = {}
    for token in tokens:
        if token.type in (tokenize.NAME, tokenize.STRING):
            found |= {w: None for w in _WORD.findall(token.string) if w not in LANGUAGE}
        elif token.type == tokenize.COMMENT and (label := _LABEL.match(token.string)):
            labels[label[1]] = None
    loops = frozenset(re.findall(r"\bfor (\w+) in", text))
    names = _new_names(list(found), loops, scheme)
    numbers = {label: f"Zeile{len(labels) - place}" for place, label in enumerate(labels)}

    def changed(
        token: tokenize.TokenInfo, table: Mapping[str, str], numbers: Mapping[str, str]
    ) -> str:
        if token.type in (tokenize.NAME, tokenize.STRING):
            return _WORD.sub(lambda word: table.get(word[0], word[0]), token.string)
        if token.type == tokenize.COMMENT:
            label = _LABEL.match(token.string)
            return "" if label is None else f"# {numbers.get(label[1], label[1])}"
        return token.string

    before, after = (
        tokenize.untokenize((token.type, changed(token, *tables)) for token in tokens)
        for tables in (({}, {}), (names, numbers))
    )
    return Renamed(before, after, names, loops)


def _new_names(names: list[str], loops: frozenset[str], scheme: str) -> dict[str, str]:
    match scheme:
        case "short":
            small, other = iter("pqrstuvwxyzabcdefg"), iter("ZYXWVUTSRQPONMLKJIHGFEDCBAjkhimno")
            return {name: next(small if name in loops else other) for name in names}
        case "long":
            return {name: f"a_name_of_{place}_words" for place, name in enumerate(names)}
        case "reversed":
            places = {name: 99 - place for place, name in enumerate(sorted(names))}
            return {name: f"n{places[name]}" for name in names}
        case _:
            raise ValueError(scheme)


def stream(module: str) -> list[Token]:
    """Return the tokens of a module without comments and layout.

    The text goes through `ast`, so that brackets that only hold a wrapped line together and strings
    written in several pieces make no difference.
    """
    plain = ast.unparse(ast.parse(module))
    tokens = tokenize.generate_tokens(io.StringIO(plain).readline)
    return [(token.type, token.string) for token in tokens if token.type not in _LAYOUT]


def name_map(before: list[Token], after: list[Token]) -> dict[str, str]:
    """Return the bijection between the identifiers of two modules.

    Raises:
        AssertionError: There is none, or something other than a name differs.
    """
    assert len(before) == len(after)
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for (kind, old), (other, new) in zip(before, after, strict=True):
        assert kind == other, (old, new)
        if kind == tokenize.NAME:
            assert there.setdefault(old, new) == new, (old, new)
            assert back.setdefault(new, old) == old, (old, new)
        elif kind not in _TEXT:
            assert old == new
    return there


def texts(tokens: Iterable[Token]) -> list[str]:
    """Return the strings of a module."""
    return [text for kind, text in tokens if kind in _TEXT]


def same_words(before: str, after: str, names: Mapping[str, str]) -> bool:
    """Tell whether two texts are the same but for names; a name may be a word of the text too."""
    old, new = (re.findall(r"\w+|[^\w\s]", text.replace("\\n", "\n")) for text in (before, after))
    if len(old) != len(new):
        return False
    return all(b in (a, names.get(a, a)) for a, b in zip(old, new, strict=True))


def shapes(name: str, own: Mapping[str, int], loops: Iterable[str]) -> set[str]:
    """Return the ways to read a name of a module, the names of the listing in it as numbers.

        S_ij -> <3>_<0>_<1>        BLOCK_I -> BLOCK_<0>        stride_Q_i -> stride_<5>_<0>
        SCALE_POSITIVE -> <7>_POSITIVE

    Args:
        name: The name.
        own: The names of the listing, numbered.
        loops: Those of them that are loop variables.
    """
    for loop in loops:
        if name == f"BLOCK_{loop.upper()}":
            return {f"BLOCK_<{own[loop]}>"}
        # Where a kernel has blocks of it in two ways, the second has a number.
        block, _, number = name.rpartition("_")
        if block == f"BLOCK_{loop.upper()}" and number.isdigit():
            return {f"BLOCK_<{own[loop]}>_{number}"}
    for each, place in own.items():
        if name == f"{each.upper()}_POSITIVE":
            return {f"<{place}>_POSITIVE"}
    # The elements of a row `Q[i]` have no variable; it is called as their number, in small letters.
    known = {**{each.lower(): place for each, place in own.items()}, **own}
    letters = {loop for loop in loops if len(loop) == 1}
    found: set[str] = set()
    for end in [*(place for place, sign in enumerate(name) if sign == "_"), len(name)]:
        part, rest = name[:end], name[end + 1 :]
        ways = {part} if "_" not in part else set()
        if part in known:
            ways.add(f"<{known[part]}>")
        if part and set(part) <= letters:
            ways.add("_".join(f"<{own[letter]}>" for letter in part))
        if end == len(name):
            found |= ways
        elif ways:
            found |= {f"{way}_{other}" for way in ways for other in shapes(rest, own, loops)}
    return found

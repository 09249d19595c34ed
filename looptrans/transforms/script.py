"""Transformations as a person writes them: `interchange(i, j); skew(j, i, 1)`.

    script    = [call] { (";" | end of line) [call] }
    call      = name "(" [argument { "," argument }] ")"
    argument  = name | name "@" (line | label) | integer | "+" | "*"

A name may have dots (`self.x`), line ends inside parentheses mean nothing, and `#` begins a
comment. What a name stands for is for the transformation to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Literal, TypeAlias

from looptrans.analysis.budget import sharing
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.monoids import MONOIDS
from looptrans.ir.program import Program
from looptrans.ir.source import Source, Span, as_named
from looptrans.ir.step import Step
from looptrans.ir.walk import loops, placed
from looptrans.transforms.catalogue import NAMES, Entry, Kind, Slot, entry_of, function_of
from looptrans.transforms.editing.errors import (
    AmbiguousLoop,
    BadNumber,
    NoSuchLoop,
    NoSuchStatement,
)
from looptrans.transforms.editing.tree import find_loop, find_statement
from looptrans.transforms.mistakes import BadScript, UnknownTransformation, WrongArguments

SOURCE_NAME = "<transformations>"
LONGEST_INTEGER = 18

Form: TypeAlias = Literal["word", "integer", "operator"]

_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\r\f\v]+|#[^\n]*)"
    r"|(?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*(?:@\w+)?)"
    r"|(?P<integer>[+-]?[0-9][\w.]*)"
    r"|(?P<operator>[+*]|(?P<quote>['\"])(?:[+*]|max|min)(?P=quote))"
    r"|(?P<end>[;\n])"
    r"|(?P<sign>[(),])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_KINDS: Final = ("blank", "word", "integer", "operator", "end", "sign", "other")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_WANTED: Final[dict[Kind, str]] = {
    "loop": "the name of a loop, such as j, j@12 or j@S7",
    "statement": "the label of a statement, such as S3",
    "name": "the name of an array or scalar",
    "size": "a size, an integer above 0",
    "factor": "an integer",
    "operator": f"an operator, {', '.join(MONOIDS[:-1])} or {MONOIDS[-1]}",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as it is written.

    Attributes:
        text: The text, without quotes.
        form: What it looks like; `max` is a word, whatever it is meant as.
        span: Where it stands in the script.
    """

    text: str
    form: Form
    span: Span

    @property
    def value(self) -> str | int:
        """What the transformation is given."""
        return int(self.text) if self.form == "integer" else self.text


@dataclass(frozen=True, slots=True)
class Call:
    """One transformation with its arguments.

    Attributes:
        name: The transformation's name.
        arguments: Its arguments in order.
        name_span: Where the name stands.
        span: Where all of it stands, or its first line.
    """

    name: str
    arguments: tuple[Argument, ...]
    name_span: Span
    span: Span

    @property
    def text(self) -> str:
        """The call as one writes it, `interchange(i, j)`."""
        return f"{self.name}({', '.join(argument.text for argument in self.arguments)})"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    span: Span


def as_source(script: str | Sequence[str]) -> Source:
    """Return a script as a text that spans can point into; several parts are lines of it."""
    return Source(SOURCE_NAME, script if isinstance(script, str) else "\n".join(script))


def parse_script(script: str | Sequence[str]) -> tuple[Call, ...]:
    """Read transformations, each with arguments that fit it by number and kind.

    Args:
        script: One text, or several.

    Raises:
        ListingError: The text is not understood, a transformation does not exist, or its arguments
            do not fit.
    """
    source = as_source(script)
    try:
        calls = _Reader(tuple(_tokens(source.plain))).script()
        if not calls:
            raise BadScript("no transformation is given", None, remedy=_example(None))
    except Mistake as mistake:
        raise ListingError([mistake], source) from None
    mistakes = [mistake for call in calls for mistake in _mistakes(call)]
    if mistakes:
        raise ListingError(mistakes, source)
    return calls


def bound(call: Call, entry: Entry) -> dict[str, tuple[str, ...]]:
    """Return the arguments of a call that fits, as written, by the name of their slot."""
    given = list(call.arguments)
    return {slot.name: tuple(each.text for each in _take(given, slot)) for slot in entry.slots}


def apply_all(
    program: Program, script: str | Sequence[str], *, budget: float | None = None
) -> tuple[Step, ...]:
    """Transform a program step by step; the last step is the first that is not legal, if any is.

        interchange(i, j); reverse(i)   ->   (Step(program, p1), Step(p1, p2))

    Args:
        program: The program.
        script: The transformations, in one text or several.
        budget: Seconds for all that is asked about one transformation; None for the usual limit on
            each question.

    Raises:
        ListingError: The script is not understood, or a transformation cannot be made on the
            program it meets: no such loop, loops that are not nested, an ambiguous name.
    """
    calls = parse_script(script)
    # Every check runs in a forked process; what it needs is loaded once, before the first.
    import_module("looptrans.analysis.legality.equivalence")
    steps: list[Step] = []
    for call in calls:
        before = steps[-1].after if steps else program
        try:
            with sharing(budget):
                step = function_of(call.name)(before, *(each.value for each in call.arguments))
        except Mistake as mistake:
            raise _located(mistake, call, before, steps, script) from None
        steps.append(step)
        if step.verdict.decision != "legal":
            break
    return tuple(steps)


def _located(
    mistake: Mistake,
    call: Call,
    before: Program,
    steps: Sequence[Step],
    script: str | Sequence[str],
) -> ListingError:
    """Return the error with a place.

    That is an argument that names nothing or has no meaning, else where the listing is not as the
    transformation needs it, else the whole call. What a step before has put in stands nowhere in
    the listing: then it is the argument that names it, and the step is told.
    """
    argument = _culprit(mistake, call, before)
    if argument is None and mistake.span is not None and mistake.span.line < 1:
        mistake.span = None
        argument, origin = _made(call, steps)
        if argument is not None:
            made = f"{argument.text} is made by {origin}"
            mistake.why = f"{mistake.why}; {made}" if mistake.why else made
    if argument is None and mistake.span is not None and not isinstance(mistake, BadNumber):
        mistake.message = f"{call.text}: {mistake.message}"
        return ListingError([mistake], before.source)
    mistake.span = call.span if argument is None else argument.span
    return ListingError([mistake], as_source(script))


def _culprit(mistake: Mistake, call: Call, program: Program) -> Argument | None:
    """Return the argument a mistake is about, where it is about one."""
    numbers = [each for each in call.arguments if each.form == "integer"]
    if isinstance(mistake, BadNumber):
        return numbers[0] if len(numbers) == 1 else None
    finders = {NoSuchLoop: find_loop, AmbiguousLoop: find_loop, NoSuchStatement: find_statement}
    find = next((find for kind, find in finders.items() if isinstance(mistake, kind)), None)
    words = [each for each in call.arguments if each.form == "word"]
    if find is not None:
        # Looked up alone, the argument gives just this mistake.
        return next((w for w in words if _failure(find, program, w) == mistake.message), None)
    if mistake.span is None:
        told = mistake.message.split()
        return next((word for word in words if word.text in told), None)
    return None


def _made(call: Call, steps: Sequence[Step]) -> tuple[Argument | None, str]:
    """Return the first argument that names what a step has put in, and the step."""
    for word in call.arguments:
        name = word.text.partition("@")[0]
        for step in steps:
            if name in _named(step.after) and name not in _named(step.before):
                return word, step.name
    return None, ""


def _named(program: Program) -> set[str]:
    labels = {place.label for place in placed(program)}
    return labels | {loop.variable for loop in loops(program)} | {a.name for a in program.arrays}


def _failure(find: Callable[[Program, str], object], program: Program, word: Argument) -> str:
    try:
        find(program, word.text)
    except Mistake as found:
        return found.message
    return ""


def _tokens(text: str) -> Iterator[_Token]:
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        kind = next(kind for kind in _KINDS if match[kind] is not None)
        column = len(text[start : match.start()].encode(errors="surrogatepass"))
        width = len(match[0].encode(errors="surrogatepass"))
        if kind != "blank":
            yield _Token(kind, as_named(match[0]), Span(line, column, line, column + width))
        if match[0] == "\n":
            line, start = line + 1, match.end()
    column = len(text[start:].encode(errors="surrogatepass"))
    yield _Token("end", "", Span(line, column, line, column + 1))


class _Reader:
    """Reads calls off a list of tokens; the last token is an `end`."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.tokens = tokens
        self.place = 0

    def next(self) -> _Token:
        token = self.tokens[self.place]
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def next_inside(self) -> _Token:
        """Return the next token inside parentheses, where line ends mean nothing."""
        while self.tokens[self.place].text == "\n":
            self.place += 1
        return self.next()

    def script(self) -> tuple[Call, ...]:
        calls: list[Call] = []
        while True:
            token = self.next()
            if token.text == "":
                return tuple(calls)
            if token.kind == "end":
                continue
            calls.append(self.call(token))
            after = self.next()
            if after.kind != "end":
                raise _unexpected(
                    after, "a transformation ends with its )", "put ; or a line end between two"
                )
            if after.text == "":
                return tuple(calls)

    def call(self, name: _Token) -> Call:
        if name.kind != "word" or "@" in name.text:
            raise _unexpected(name, "a transformation begins with its name", _example(None))
        opening = self.next()
        if opening.text != "(":
            if entry_of(name.text) is None:
                raise _unknown(name.text, name.span)
            raise BadScript(
                f"the arguments of {name.text} are missing",
                name.span,
                why=f"{_shown(opening)} stands where ( is expected",
                remedy=_example(name.text),
            )
        arguments: list[Argument] = []
        token = self.next_inside()
        if token.text != ")":
            while True:
                arguments.append(_argument(token, name))
                token = self.next_inside()
                if token.text == ")":
                    break
                if token.text != ",":
                    raise self.unclosed(token, name)
                token = self.next_inside()
        last = token.span
        start = name.span
        # A span that ends on another line underlines the rest of its first one.
        span = Span(start.line, start.column, last.end_line, last.end_column)
        return Call(name.text, tuple(arguments), start, span)

    def unclosed(self, token: _Token, name: _Token) -> BadScript:
        if token.kind == "end":
            return BadScript(
                f"the ) of {name.text} is missing", name.span, remedy=_example(name.text)
            )
        why = "arguments are separated by commas"
        if token.text == "=":
            why = "arguments are given in order, without their names"
        return _unexpected(token, why, _example(name.text))


def _argument(token: _Token, name: _Token) -> Argument:
    match token.kind:
        case "word":
            return Argument(token.text, "word", token.span)
        case "integer":
            if not _INTEGER.fullmatch(token.text):
                raise BadScript(
                    f"{token.text!r} is neither a name nor an integer",
                    token.span,
                    remedy=_example(name.text),
                )
            if len(token.text) > LONGEST_INTEGER:
                raise BadScript("the number is too large", token.span, remedy="take a smaller one")
            return Argument(str(int(token.text)), "integer", token.span)
        case "operator":
            return Argument(token.text.strip("'\""), "operator", token.span)
        case "end":
            raise BadScript(
                f"the ) of {name.text} is missing", name.span, remedy=_example(name.text)
            )
        case _:
            why = "an argument is a name, an integer or an operator"
            raise _unexpected(token, why, _example(name.text))


def _unexpected(token: _Token, why: str, remedy: str) -> BadScript:
    return BadScript(f"{_shown(token)} is not expected here", token.span, why=why, remedy=remedy)


def _shown(token: _Token) -> str:
    if token.text in {"", "\n"}:
        return "the end" if token.text == "" else "the end of the line"
    return repr(token.text)


def _example(name: str | None) -> str:
    entry = None if name is None else entry_of(name)
    return f"write for example {'interchange(i, j)' if entry is None else entry.example}"


def _mistakes(call: Call) -> Iterator[Mistake]:
    """Yield what is wrong with the name of a transformation, or with its arguments."""
    entry = entry_of(call.name)
    if entry is None:
        yield _unknown(call.name, call.name_span)
        return
    remedy = f"write {entry.signature}, for example {entry.example}"
    given = list(call.arguments)
    possible: list[Slot] = []  # what the next argument may be
    for slot in entry.slots:
        taken = _take(given, slot)
        possible = [] if taken else possible
        possible += [slot] if slot.repeated or not taken else []
        if not taken and not slot.optional:
            break
    else:
        if not given:
            return
    if not given:
        missing = f"{call.name} has too few arguments: {possible[-1].name} is missing"
        yield WrongArguments(missing, call.span, remedy=remedy)
    elif possible:
        wanted = " or ".join(dict.fromkeys(_WANTED[slot.kind] for slot in possible))
        yield WrongArguments(
            f"{given[0].text!r} is not what {entry.name} takes here",
            given[0].span,
            why=f"here it wants {wanted}",
            remedy=remedy,
        )
    else:
        many = f"{entry.name} has too many arguments"
        yield WrongArguments(many, given[0].span, remedy=remedy)


def _take(given: list[Argument], slot: Slot) -> tuple[Argument, ...]:
    """Remove from the front of the arguments those that a slot takes, and return them."""
    count = 0
    while count < len(given) and (slot.repeated or not count) and _fits(given[count], slot):
        count += 1
    taken, given[:count] = tuple(given[:count]), []
    return taken


def _unknown(name: str, span: Span) -> Mistake:
    import difflib

    close = difflib.get_close_matches(name.lower(), NAMES, 2, 0.6)
    meant = " or ".join(entry.signature for entry in map(entry_of, close) if entry is not None)
    return UnknownTransformation(
        f"there is no transformation {name!r}",
        span,
        why=f"the transformations are {', '.join(NAMES)}",
        remedy=f"did you mean {meant}?" if meant else "looptrans check --help describes them",
    )


def _fits(argument: Argument, slot: Slot) -> bool:
    match slot.kind:
        case "loop":
            return argument.form == "word"
        case "statement" | "name":
            return argument.form == "word" and "@" not in argument.text
        case "size":
            return argument.form == "integer" and int(argument.text) > 0
        case "factor":
            return argument.form == "integer"
        case "operator":
            return argument.text in MONOIDS

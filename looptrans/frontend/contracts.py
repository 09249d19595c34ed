"""From syntax to contracts: `assert H == G * R`, `assert all(… for b in range(B))`."""

from __future__ import annotations

import ast

from looptrans.frontend.mistakes import BadContract
from looptrans.frontend.syntax import called, head_of, short, span_of
from looptrans.frontend.values import Values
from looptrans.ir.condition import is_data_dependent
from looptrans.ir.program import Contract


def read_contracts(
    statement: ast.Assert, values: Values, leading: tuple[str, ...], comment: str
) -> list[Contract]:
    """Read one `assert`; each part that `and` joins becomes a contract where one is an `all(…)`.

    Raises:
        Mistake: It stands inside the nest, or is no exact statement.
    """
    if values.scope.depth:
        raise BadContract(
            "a contract stands inside a loop or guard",
            head_of(statement),
            why="it must hold for the whole run",
            remedy="state it at the top of the function, with all(… for … in range(…))",
        )
    test = statement.test
    parts = [test]
    match test:
        case ast.BoolOp(op=ast.And(), values=joined) if any(_is_all(part) for part in joined):
            parts = joined
        case _:
            pass
    values.scope.spelled_out = True
    try:
        contracts = [_contract(part, values, statement) for part in parts]
    finally:
        values.scope.spelled_out = False
    first = Contract(
        contracts[0].condition, contracts[0].generators, leading, comment, contracts[0].span
    )
    return [first, *contracts[1:]]


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called(node.func) == "all"


def _contract(test: ast.expr, values: Values, statement: ast.Assert) -> Contract:
    clauses: list[ast.comprehension] = []
    inner = test
    while isinstance(inner, ast.Call) and _is_all(inner):
        values.names.called(inner.func)
        argument = inner.args[0] if len(inner.args) == 1 and not inner.keywords else None
        if not isinstance(argument, ast.GeneratorExp | ast.ListComp):
            raise BadContract(
                "all(…) takes a comparison and for … in range(…)",
                span_of(inner),
                why="what it ranges over must be seen from the text",
                remedy="assert all(cu[b] <= cu[b + 1] for b in range(B))",
            )
        clauses += argument.generators
        inner = argument.elt
    with values.bound(clauses) as generators:
        condition = values.condition(inner)
    if any(is_data_dependent(each) for each in [condition, *(g.condition for g in generators)]):
        raise BadContract(
            f"{short(test)} is no comparison of sizes and integer arrays",
            span_of(test),
            why="a contract is used in proofs, so it must be an exact statement",
            remedy="compare sizes, loop variables and elements of integer arrays",
        )
    return Contract(condition, generators, span=span_of(statement))

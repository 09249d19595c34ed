"""A Program as JSON."""

from __future__ import annotations

import json
from typing import Any

from looptrans.ir.listing import assign_text, condition_text, contract_text, index_text, listing
from looptrans.ir.program import Array, Assign, Program
from looptrans.ir.walk import placed


def program_json(program: Program) -> str:
    """Return the listing and what its names stand for, schema `looptrans.show/1`."""
    inputs = program.input_names
    document = {
        "schema": "looptrans.show/1",
        "program": program.name,
        "parameters": [
            {"name": parameter.name, "kind": parameter.kind, "default": parameter.default}
            for parameter in program.parameters
        ],
        "arrays": [_array(array) for array in program.arrays],
        "contracts": [contract_text(contract) for contract in program.contracts],
        "statements": [
            {
                "label": place.label,
                "text": assign_text(place.node, inputs)
                if isinstance(place.node, Assign)
                else condition_text(place.node.condition),
                "line": place.node.span.line,
                "loops": [loop.variable for loop in place.loops],
            }
            for place in placed(program)
        ],
        "outputs": list(program.outputs),
        "listing": listing(program),
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def _array(array: Array) -> dict[str, Any]:
    return {
        "name": array.name,
        "rank": array.rank,
        "element": array.element,
        "role": array.role,
        "shape": [None if extent is None else index_text(extent) for extent in array.shape],
    }

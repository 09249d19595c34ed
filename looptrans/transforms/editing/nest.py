"""What every transformation needs of the tree it works on, in one place.

- `errors`: what can be wrong with its arguments,
- `tree`: loops, statements and positions, and replacing nodes,
- `naming`: names and labels for what it adds,
- `finish`: what is left to do after the edit.

`substitute` rewrites what the nodes say; `band` knows perfect nests.
"""

from __future__ import annotations

from looptrans.transforms.editing.errors import (
    NEST_MISTAKES,
    AmbiguousLoop,
    BadNumber,
    BoundToLoop,
    NameInUse,
    NoSuchLoop,
    NoSuchStatement,
    NotAdjacent,
    NothingToDo,
    NotNested,
    RangeNotFound,
    TransformError,
)
from looptrans.transforms.editing.finish import (
    finished,
)
from looptrans.transforms.editing.naming import (
    binders,
    fresh_label,
    fresh_name,
    names_used,
    with_array,
)
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    block_at,
    find_loop,
    find_statement,
    is_node,
    loop_name,
    loop_paths,
    loops_around,
    node_at,
    replace_at,
    statements_in,
    walk_positions,
)

__all__ = [
    "NEST_MISTAKES",
    "AmbiguousLoop",
    "BadNumber",
    "BoundToLoop",
    "LoopPath",
    "NameInUse",
    "NoSuchLoop",
    "NoSuchStatement",
    "NotAdjacent",
    "NotNested",
    "NothingToDo",
    "Position",
    "RangeNotFound",
    "TransformError",
    "binders",
    "block_at",
    "find_loop",
    "find_statement",
    "finished",
    "fresh_label",
    "fresh_name",
    "is_node",
    "loop_name",
    "loop_paths",
    "loops_around",
    "names_used",
    "node_at",
    "replace_at",
    "statements_in",
    "walk_positions",
    "with_array",
]

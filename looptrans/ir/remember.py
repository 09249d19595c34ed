"""What a function of an immutable tree gave, kept: one program is asked the same again and again.

A tree is known by its identity. Programs that are equal may stand at different places in a text,
and to compare or to hash a whole program takes as long as most questions about it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Tree = TypeVar("Tree")
Answer = TypeVar("Answer")
MOST = 64
"""How many programs are kept."""
MOST_PARTS = 8192
"""How many statements of programs."""


def remembered(function: Callable[[Tree], Answer]) -> Callable[[Tree], Answer]:
    """Return a function that works its answer out once for each of the last programs."""
    return _remembered(function, MOST)


def remembered_of_parts(function: Callable[[Tree], Answer]) -> Callable[[Tree], Answer]:
    """Return a function that works its answer out once for each of the last statements."""
    return _remembered(function, MOST_PARTS)


def _remembered(function: Callable[[Tree], Answer], most: int) -> Callable[[Tree], Answer]:
    # With the answer the tree is kept: no other can then have its identity.
    kept: dict[int, tuple[Tree, Answer]] = {}

    @wraps(function)
    def answered(tree: Tree) -> Answer:
        known = kept.get(id(tree))
        if known is not None:
            return known[1]
        answer = function(tree)
        if len(kept) >= most:
            kept.clear()
        kept[id(tree)] = tree, answer
        return answer

    return answered

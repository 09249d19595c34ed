"""The meaning of a Program under NumPy, one scalar operation after the other."""

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs, prepare
from looptrans.executor.log import AccessLog, Entry
from looptrans.executor.run import execute, execute_on, output_names

__all__ = [
    "AccessLog",
    "Entry",
    "ExecutionError",
    "Inputs",
    "execute",
    "execute_on",
    "output_names",
    "prepare",
]

"""The meaning of a Program under NumPy, one scalar operation after the other."""

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs, prepare
from looptrans.executor.log import AccessLog, Entry
from looptrans.executor.races import Race, RaceLog, Touch
from looptrans.executor.run import execute, execute_on, is_parallel, output_names

__all__ = [
    "AccessLog",
    "Entry",
    "ExecutionError",
    "Inputs",
    "Race",
    "RaceLog",
    "Touch",
    "execute",
    "execute_on",
    "is_parallel",
    "output_names",
    "prepare",
]

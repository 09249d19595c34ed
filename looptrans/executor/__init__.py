"""The meaning of a Program under NumPy, one scalar operation after the other.

asked from outside        run, inputs, errors, log, races, agreement
what a run starts from    sizes, equations, contracts, random_inputs, spans, boxes
one after the other       closures, control, statements, values, writes, operations, casts, philox,
                          storage
parallel loops            tasks, private, reducing
many iterations at once   vectors, lanes, vector_machine, vector_operations, vector_store,
                          vector_values, roundings
"""

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs, prepare
from looptrans.executor.log import AccessLog, Entry
from looptrans.executor.races import Race, RaceLog, Touch
from looptrans.executor.run import execute, execute_on, output_names

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
    "output_names",
    "prepare",
]

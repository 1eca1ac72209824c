"""What a task does for the Python process that it shares with the tasks before and after it: next to nothing.

Spark keeps these processes, and anybody's code may run in them. This file must change nothing that such code could see.
"""

import gc
from functools import cache


@cache
def settle() -> None:
    """Has the garbage collector pass over all objects so far, once in a process: the modules, which stay anyway.

    Spark runs a whole collection after every task. It took 32 of the 43 ms of CPU that a task with one record took in
    Python.
    """
    gc.freeze()

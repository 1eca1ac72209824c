"""What the tasks of one Python process leave behind for each other."""

import subprocess
import sys

PROGRAM = """
import gc, weakref
from semel.spark.worker import settle

class Rows:
    def __init__(self):
        self.itself = self

settle()
passed_over = gc.get_freeze_count()
rows = weakref.ref(Rows())
settle()
gc.collect()
print(passed_over > 1000, gc.get_freeze_count() <= passed_over, rows() is None)
"""


def test_only_what_is_there_after_the_first_task_is_passed_over_and_what_later_ones_leave_is_collected() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    assert told.split() == ["True", "True", "True"]

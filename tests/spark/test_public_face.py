"""What `semel.spark` offers, and what it must not cost those who ask for none of it."""

import subprocess
import sys
from types import FunctionType

import semel.spark


def in_a_process_of_its_own(program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()


def test_every_name_is_a_function_also_where_a_room_has_the_same_name() -> None:
    rooms = "semel.spark.dedup.judge, semel.spark.lanes.options, semel.spark.session"
    names = "import semel.spark; print(*(type(getattr(semel.spark, name)).__name__ for name in semel.spark.__all__))"
    assert set(in_a_process_of_its_own(f"import {rooms}; {names}")) == {FunctionType.__name__}
    assert set(semel.spark.__all__) <= set(dir(semel.spark))


def test_who_only_reads_does_not_import_what_writes_and_deduplicates() -> None:
    imported = set(in_a_process_of_its_own("import pyspark_semel, sys; print(*sys.modules)"))
    assert "semel.spark.source.stream" in imported
    assert not imported & {"confluent_kafka", "semel.spark.dedup", "semel.spark.lanes", "semel.spark.tables"}

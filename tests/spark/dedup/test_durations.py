"""A length of time means the same whether it is written in words or given as a timedelta."""

from datetime import timedelta

import pytest

from semel.spark.dedup.parameters import duration_ms


@pytest.mark.parametrize("unit", ["milliseconds", "seconds", "minutes", "hours", "days", "weeks"])
def test_each_unit_is_as_long_as_it_is(unit: str) -> None:
    length = timedelta(**{unit: 3})
    expected_ms = length // timedelta(milliseconds=1)
    for written in (f"3 {unit}", f"3{unit.removesuffix('s')}", f" 3 {unit.upper()} ", length):
        assert duration_ms("hold_for", written) == expected_ms


@pytest.mark.parametrize("value", ["", "3", "seconds", "3 years", "-3 seconds", "0 days", timedelta(0)])
def test_what_is_no_length_of_time_is_refused(value: str | timedelta) -> None:
    with pytest.raises(ValueError, match="hold_for="):
        duration_ms("hold_for", value)

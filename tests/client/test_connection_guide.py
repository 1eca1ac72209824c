"""What the guide to connections shows works as it stands, and the options that it names are the ones there are."""

import re

import pytest

from asking import Asker
from chapters import chapter
from semel.client import SettingsRefused, from_options
from semel.testing.broker import FaultyBroker

GUIDE = chapter("spark-source", "Connect to a cluster")
SERVERS = {"kafka.bootstrap.servers": "one:9092"}


def refusal(option: str) -> str:
    """What is said of an option that stands alone with a value that none can have."""
    try:
        from_options({**SERVERS, option: "\t"})
    except SettingsRefused as refused:
        return str(refused)
    return ""


def options_in(text: str) -> list[str]:
    return re.findall(r"`(kafka\.[a-z.]+)`", text)


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    [block] = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    with FaultyBroker() as broker:
        asker = Asker(broker.bootstrap)
        asker.create("payments")
        asker.close()
        exec(block.replace("127.0.0.1:9092", broker.bootstrap), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", block)


def test_every_option_that_is_named_is_known_or_refused_as_is_said() -> None:
    known, refused = GUIDE.split("### What is refused")
    assert [option for option in options_in(known) if re.search("not known|cannot be set", refusal(option))] == []
    refused, without_meaning = refused.split("Settings that only tune")
    assert [option for option in options_in(refused) if "cannot be set" not in refusal(option)] == []
    assert [option for option in options_in(without_meaning) if refusal(option)] == []


def test_the_defaults_are_those_there_are() -> None:
    defaults = from_options(SERVERS)
    assert (defaults.partition_bytes_max, defaults.fetch_bytes_max) == (4 * 1024 * 1024, 50 * 1024 * 1024)
    assert (defaults.fetch_wait_ms_max, defaults.fetch_bytes_min, defaults.client_id) == (500, 1, "semel-spark")
    assert (defaults.request_timeout_ms, defaults.connect_timeout_ms, defaults.api_timeout_ms) == (30000, 10000, 60000)
    assert (defaults.retry_backoff_ms, defaults.retry_backoff_ms_max) == (100, 1000)

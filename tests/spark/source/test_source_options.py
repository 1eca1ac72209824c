"""Which options the source takes, what each may say, and in which words it refuses."""

import json

import pytest

from semel.client.errors import SettingsRefused
from semel.client.places import EARLIEST, LATEST, Isolation, TopicPartition
from semel.spark.source.bounds import AtEdge, AtOffsets, AtTimestamp, AtTimestamps
from semel.spark.source.errors import OptionRefused
from semel.spark.source.options import (
    OPTIONS,
    SourceOptions,
    Subscription,
    check_for_batch,
    check_for_stream,
    read_options,
)

NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "payments"}
WITHOUT_TOPIC = {"kafka.bootstrap.servers": "localhost:9092"}
PAYMENTS_0, PAYMENTS_1 = TopicPartition("payments", 0), TopicPartition("payments", 1)


def options(**given: str) -> SourceOptions:
    return read_options(NEEDED | given)


def refusal(given: dict[str, str]) -> str:
    with pytest.raises((OptionRefused, SettingsRefused)) as refused:
        read_options(given)
    return str(refused.value)


def refusal_of(name: str, value: str) -> str:
    return refusal(NEEDED | {name: value})


def test_the_defaults_are_those_of_sparks_own_source_but_for_the_isolation() -> None:
    read = options()
    assert read.begins(streaming=True) == AtEdge(LATEST)
    assert read.begins(streaming=False) == AtEdge(EARLIEST)
    assert read.ending == AtEdge(LATEST)
    assert read.isolation is Isolation.READ_COMMITTED
    assert read.fails_on_data_loss
    assert not read.includes_headers
    assert not read.includes_producer
    assert (read.offsets_max, read.offsets_min, read.partitions_min, read.records_max) == (None, None, None, None)
    assert read.delay_ms_max == 15 * 60 * 1000


def test_names_of_options_have_no_case() -> None:
    read = read_options(
        {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "t", "maxoffsetspertrigger": "7", "includeHEADERS": "TRUE"}
    )
    assert (read.offsets_max, read.includes_headers, read.subscription.topics) == (7, True, ("t",))


def test_an_unknown_option_is_refused_with_the_one_that_was_probably_meant() -> None:
    assert refusal_of("startingOfsets", "earliest") == "option startingOfsets is not known; was startingOffsets meant?"
    assert refusal_of("colour", "red") == "option colour is not known"


@pytest.mark.parametrize("name", ["path", "topic", "kafkaConsumer.pollTimeoutMs"])
def test_an_option_that_would_change_nothing_is_refused_with_what_does(name: str) -> None:
    assert refusal_of(name, "x").startswith(f"option {name} cannot be set: ")


@pytest.mark.parametrize(
    "name", ["auto.offset.reset", "enable.auto.commit", "key.deserializer", "value.deserializer", "interceptor.classes"]
)
def test_what_sparks_own_source_refuses_of_kafkas_options_is_refused(name: str) -> None:
    assert refusal_of(f"kafka.{name}", "x").startswith(f"option kafka.{name} cannot be set: ")


def test_an_address_is_needed() -> None:
    assert "kafka.bootstrap.servers is missing" in refusal({"subscribe": "payments"})


def test_exactly_one_option_says_what_is_read() -> None:
    both = refusal_of("subscribePattern", "pay.*")
    assert both == (
        "exactly one of subscribe, subscribePattern and assign says what is read; "
        "subscribe and subscribePattern are given"
    )
    assert refusal(WITHOUT_TOPIC).endswith("none is")


def test_topics_are_named_with_commas_between() -> None:
    assert options(subscribe=" b , a,,b").subscription == Subscription(("a", "b"))
    assert refusal_of("subscribe", " ") == "option subscribe is empty"
    assert refusal_of("subscribe", ",,") == "option subscribe: ',,' names no topic"


def test_a_pattern_is_a_regular_expression() -> None:
    assert read_options(WITHOUT_TOPIC | {"subscribePattern": " pay.* "}).subscription == Subscription(pattern="pay.*")
    assert "is not a regular expression" in refusal(WITHOUT_TOPIC | {"subscribePattern": "pay("})


def test_partitions_are_assigned_by_json() -> None:
    read = read_options(WITHOUT_TOPIC | {"assign": '{"payments": [1, 0], "refunds": [2]}'})
    places = frozenset((PAYMENTS_0, PAYMENTS_1, TopicPartition("refunds", 2)))
    assert read.subscription == Subscription(("payments", "refunds"), None, places)


@pytest.mark.parametrize("text", ["payments", "[]", "{}", '{"payments": 0}', '{"payments": ["0"]}', '{"a": [-1]}'])
def test_partitions_in_any_other_form_are_refused_with_an_example(text: str) -> None:
    said = refusal(WITHOUT_TOPIC | {"assign": text})
    assert said == f'option assign: {text!r} should look like {{"topicA": [0, 1], "topicB": [2]}}'


def test_offsets_are_words_or_json_in_which_negative_numbers_are_the_ends() -> None:
    assert options(startingOffsets=" Earliest ").starting == AtEdge(EARLIEST)
    assert options(endingOffsets="LATEST").ending == AtEdge(LATEST)
    text = json.dumps({"payments": {"0": 23, "1": -1}, "refunds": {"0": -2}})
    positions = {PAYMENTS_0: 23, PAYMENTS_1: LATEST, TopicPartition("refunds", 0): EARLIEST}
    assert options(startingOffsets=text).starting == AtOffsets(positions)


@pytest.mark.parametrize(
    "text", ["newest", "23", '{"a": 23}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}']
)
def test_offsets_in_any_other_form_are_refused_with_an_example(text: str) -> None:
    said = refusal_of("startingOffsets", text)
    assert said.startswith(f"option startingOffsets: {text!r} should look like earliest, latest, or {{")


def test_an_offset_below_earliest_is_refused() -> None:
    assert "-3 for a-0 is neither an offset nor -2 (earliest) nor -1" in refusal_of(
        "startingOffsets", '{"a": {"0": -3}}'
    )


def test_times_go_before_offsets_and_one_time_before_several() -> None:
    timestamps = {"startingOffsetsByTimestamp": '{"payments": {"0": 1700000000000}}', "startingOffsets": "earliest"}
    assert options(**timestamps).starting == AtTimestamps({PAYMENTS_0: 1_700_000_000_000})
    assert options(startingTimestamp="5", **timestamps).starting == AtTimestamp(5)
    ends = {"endingOffsetsByTimestamp": '{"payments": {"0": 7}}', "endingOffsets": "latest"}
    assert options(**ends).ending == AtTimestamps({PAYMENTS_0: 7})
    assert options(endingTimestamp="8", **ends).ending == AtTimestamp(8)


def test_times_are_milliseconds_since_1970() -> None:
    assert "'yesterday' is not a time" in refusal_of("startingTimestamp", "yesterday")
    assert "'-5' is not a time" in refusal_of("startingTimestamp", "-5")
    assert "-5 for a-0 is before 1970" in refusal_of("startingOffsetsByTimestamp", '{"a": {"0": -5}}')


def test_the_strategy_for_partitions_without_a_record_so_late_is_error_or_latest() -> None:
    assert not options().without_time_at_latest
    assert options(startingOffsetsByTimestampStrategy="LATEST").without_time_at_latest
    assert "'skip' is neither error nor latest" in refusal_of("startingOffsetsByTimestampStrategy", "skip")


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition"]
)
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", ""])
def test_a_number_that_counts_something_is_one_at_least(name: str, value: str) -> None:
    assert refusal_of(name, value) == f"option {name}: {value!r} is not a whole number from 1"


@pytest.mark.parametrize("name", ["failOnDataLoss", "includeHeaders", "includeProducer"])
def test_a_switch_is_true_or_false(name: str) -> None:
    assert refusal_of(name, "yes") == f"option {name}: 'yes' is not true or false"


def test_the_least_size_of_a_batch_is_not_above_the_largest() -> None:
    said = refusal(NEEDED | {"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"})
    assert said == "minOffsetsPerTrigger=8 is more than maxOffsetsPerTrigger=7"


@pytest.mark.parametrize(
    ("text", "delay_ms"), [("250", 250), ("250ms", 250), ("2 s", 2_000), ("3min", 180_000), ("1H", 3_600_000)]
)
def test_a_delay_has_a_unit(text: str, delay_ms: int) -> None:
    assert options(maxTriggerDelay=text).delay_ms_max == delay_ms


def test_a_delay_in_an_unknown_unit_is_refused() -> None:
    assert "'2 weeks' is not a time like" in refusal_of("maxTriggerDelay", "2 weeks")


def test_isolation_is_what_kafkas_option_says() -> None:
    assert options(**{"kafka.isolation.level": "read_uncommitted"}).isolation is Isolation.READ_UNCOMMITTED


def test_a_prefix_for_group_ids_becomes_the_client_id_unless_there_is_one() -> None:
    assert options(groupIdPrefix="reports").client.client_id == "reports"
    assert options(groupIdPrefix="reports", **{"kafka.client.id": "mine"}).client.client_id == "mine"


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"payments": {"0": 5}}')
    with pytest.raises(OptionRefused, match=f"option {name} is for batches"):
        check_for_stream(options(**{name: value}))
    check_for_stream(options())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"payments": {"0": -1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"payments": {"0": -2}}'),
    ],
)
def test_a_batch_neither_begins_at_the_end_nor_ends_at_the_beginning(name: str, value: str) -> None:
    with pytest.raises(OptionRefused, match=f"option {name}.* is for streams: a batch that .* there is empty"):
        check_for_batch(options(**{name: value}))


@pytest.mark.parametrize(
    "ways", [("startingOffsets", "endingOffsets"), ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp")]
)
def test_the_bounds_of_a_batch_are_in_order_and_name_the_same_partitions(ways: tuple[str, str]) -> None:
    start, end = ways
    with pytest.raises(OptionRefused, match=r"begin at 9 and end at 8 in payments-0"):
        check_for_batch(options(**{start: '{"payments": {"0": 9}}', end: '{"payments": {"0": 8}}'}))
    with pytest.raises(OptionRefused, match=r"do not name the same partitions: payments-1$"):
        check_for_batch(options(**{start: '{"payments": {"0": 9}}', end: '{"payments": {"0": 9, "1": 9}}'}))
    assert check_for_batch(options(**{start: '{"payments": {"0": 9}}', end: '{"payments": {"0": 9}}'})) == []


def test_what_limits_a_stream_changes_nothing_in_a_batch_and_is_named() -> None:
    read = options(maxOffsetsPerTrigger="5", maxTriggerDelay="1s")
    assert check_for_batch(read) == ["maxOffsetsPerTrigger", "maxTriggerDelay"]


def test_every_option_is_documented_under_a_name_of_its_own() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    assert all(option.documentation.endswith((".", "`.")) for option in OPTIONS)

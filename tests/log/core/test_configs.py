"""What may be set on a topic, what is refused, and what every setting is when nobody sets it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.configs import (
    DEFINITIONS,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MIN,
    Alteration,
    InvalidConfig,
    TopicConfigs,
    altered,
    canonical,
    parse,
)
from semel.wire import refusals


def test_a_topic_without_settings_behaves_as_kafkas_defaults_say() -> None:
    assert parse({}) == TopicConfigs(
        retention_ms=604800000,
        retention_bytes=-1,
        segment_bytes=SEGMENT_BYTES_DEFAULT,
        segment_ms=604800000,
        max_message_bytes=1048588,
        log_append_time=False,
        timestamp_before_max_ms=2**63 - 1,
        timestamp_after_max_ms=3600000,
        is_deleted=True,
        is_compacted=False,
        delete_retention_ms=86400000,
        compaction_lag_min_ms=0,
        compaction_lag_max_ms=2**63 - 1,
        dirty_ratio_min=0.5,
    )


def test_every_default_is_a_value_that_could_be_set() -> None:
    for name, definition in DEFINITIONS.items():
        assert definition.name == name
        assert canonical({name: definition.default}) == {name: definition.default}
        assert definition.documentation.endswith((".", ")."))


def test_what_is_set_is_what_the_log_acts_upon() -> None:
    parsed = parse(
        {
            "retention.ms": "-1",
            "retention.bytes": "1000000",
            "segment.bytes": str(SEGMENT_BYTES_MIN),
            "segment.ms": "60000",
            "max.message.bytes": "2000",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "5",
            "message.timestamp.after.max.ms": "6",
            "cleanup.policy": "compact",
            "delete.retention.ms": "7",
            "min.compaction.lag.ms": "8",
            "max.compaction.lag.ms": "90000",
            "min.cleanable.dirty.ratio": ".250",
        }
    )
    assert parsed == TopicConfigs(
        -1, 1000000, SEGMENT_BYTES_MIN, 60000, 2000, True, 5, 6, False, True, 7, 8, 90000, 0.25
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", str(2**63)),
        ("retention.ms", "one week"),
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", "1e3"),
        ("retention.ms", "\u0661"),
        pytest.param("retention.ms", "9" * 100_000, id="a flood of digits"),
        ("retention.bytes", "-2"),
        ("segment.bytes", str(SEGMENT_BYTES_MIN - 1)),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("max.message.bytes", "-1"),
        ("message.timestamp.type", "logappendtime"),
        ("min.insync.replicas", "0"),
        ("compression.type", "brotli"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,shred"),
        ("cleanup.policy", ""),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "-0.5"),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", "1e1"),
        ("min.cleanable.dirty.ratio", "."),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("flush.messages", "0"),
    ],
)
def test_a_value_that_cannot_be_kept_is_refused_and_the_message_names_it(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse({name: value})
    assert caught.value.error == refusals.INVALID_CONFIG
    assert caught.value.message.startswith(f"{name} must be ")
    assert len(caught.value.message) < 300


def test_a_refused_number_says_what_is_allowed() -> None:
    with pytest.raises(InvalidConfig, match=r"segment\.bytes must be a whole number from 1024 to 2147483647, not '2'"):
        parse({"segment.bytes": "2"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("file.delete.delay.ms", "60000"),
        ("index.interval.bytes", "4096"),
        ("min.insync.replicas", "2"),
        ("preallocate", "true"),
        ("segment.index.bytes", "10485760"),
        ("segment.jitter.ms", "1000"),
        ("unclean.leader.election.enable", "false"),
    ],
)
def test_what_is_set_out_of_habit_is_taken_and_changes_nothing(name: str, value: str) -> None:
    assert canonical({name: value}) == {name: value}
    assert parse({name: value}) == parse({})


def test_a_truth_is_taken_as_any_language_spells_it() -> None:
    assert canonical({"unclean.leader.election.enable": " False"}) == {"unclean.leader.election.enable": "false"}
    with pytest.raises(InvalidConfig, match=r"preallocate must be true or false, not 'yes'"):
        parse({"preallocate": "yes"})


@pytest.mark.parametrize(
    ("value", "share"), [("1.0E-5", 1e-5), ("0.00001", 1e-5), ("5e-1", 0.5), ("0.", 0), ("1E+0", 1)]
)
def test_a_small_share_is_taken_as_any_language_spells_it(value: str, share: float) -> None:
    assert parse({"min.cleanable.dirty.ratio": value}).dirty_ratio_min == share
    kept = canonical({"min.cleanable.dirty.ratio": value})
    assert canonical(kept) == kept


@pytest.mark.parametrize(
    ("policy", "deleted", "compacted"),
    [("delete", True, False), ("compact", False, True), ("compact,delete", True, True), ("delete,compact", True, True)],
)
def test_a_topic_is_deleted_from_or_compacted_or_both(policy: str, deleted: bool, compacted: bool) -> None:
    parsed = parse({"cleanup.policy": policy})
    assert (parsed.is_deleted, parsed.is_compacted) == (deleted, compacted)


def test_a_record_cannot_have_to_wait_longer_than_it_may() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms \(10\) cannot be above .* \(9\)"):
        parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})
    same = parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"})
    assert (same.compaction_lag_min_ms, same.compaction_lag_max_ms) == (10, 10)


def test_where_records_are_compacted_a_segment_grows_no_longer_than_a_record_may_wait() -> None:
    lags = {"segment.ms": "5000", "max.compaction.lag.ms": "70"}
    assert parse({**lags, "cleanup.policy": "compact"}).segment_ms == 70
    assert parse(lags).segment_ms == 5000
    assert parse({**lags, "max.compaction.lag.ms": "7000", "cleanup.policy": "compact"}).segment_ms == 5000


def test_an_unknown_configuration_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"unknown topic configuration 'dummy\.doesntexist'") as caught:
        parse({"retention.ms": "5", "dummy.doesntexist": "1"})
    assert caught.value.error == refusals.INVALID_CONFIG


def test_a_configuration_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.ms has no value") as caught:
        parse({"retention.ms": None})
    assert caught.value.error == refusals.INVALID_REQUEST


def test_a_value_is_kept_in_one_spelling_however_it_was_written() -> None:
    spelt = {"retention.ms": " " * 100_000 + "+0007", "cleanup.policy": " delete , delete,", "retention.bytes": "-0"}
    assert canonical(spelt) == {"retention.ms": "7", "cleanup.policy": "delete", "retention.bytes": "0"}


@given(st.dictionaries(st.sampled_from([*DEFINITIONS, "unknown"]), st.one_of(st.text(), st.integers().map(str))))
def test_any_configuration_is_parsed_or_refused_and_nothing_else_happens(configs: dict[str, str]) -> None:
    try:
        kept = canonical(configs)
    except InvalidConfig:
        with pytest.raises(InvalidConfig):
            parse(configs)
        return
    assert canonical(kept) == kept
    assert parse(kept) == parse(configs)


def test_an_incremental_change_leaves_alone_what_it_does_not_name() -> None:
    before = {"retention.ms": "5", "retention.bytes": "6"}
    after = altered(before, [Alteration("retention.ms", "set", "7"), Alteration("segment.bytes", "set", "10000")])
    assert after == {"retention.ms": "7", "retention.bytes": "6", "segment.bytes": "10000"}
    assert before == {"retention.ms": "5", "retention.bytes": "6"}


def test_deleting_a_configuration_returns_it_to_its_default() -> None:
    assert altered({"retention.ms": "5"}, [Alteration("retention.ms", "delete")]) == {}
    assert altered({}, [Alteration("retention.ms", "delete")]) == {}


def test_appending_what_a_list_holds_already_changes_nothing() -> None:
    assert altered({}, [Alteration("cleanup.policy", "append", "delete")]) == {"cleanup.policy": "delete"}


def test_appending_to_a_list_is_held_to_what_the_list_may_hold() -> None:
    with pytest.raises(InvalidConfig, match="must be delete or compact, not 'delete,shred'"):
        altered({}, [Alteration("cleanup.policy", "append", "shred")])


def test_subtracting_what_a_list_does_not_hold_changes_nothing() -> None:
    assert altered({}, [Alteration("cleanup.policy", "subtract", "compact")]) == {"cleanup.policy": "delete"}


def test_a_list_cannot_be_emptied() -> None:
    with pytest.raises(InvalidConfig):
        altered({}, [Alteration("cleanup.policy", "subtract", "delete")])


@pytest.mark.parametrize("operation", ["append", "subtract"])
def test_only_lists_can_be_appended_to_or_subtracted_from(operation: str) -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.ms is not a list"):
        altered({}, [Alteration("retention.ms", operation, "5")])  # type: ignore[arg-type]


def test_one_request_cannot_change_the_same_configuration_twice() -> None:
    with pytest.raises(InvalidConfig, match="changed twice") as caught:
        altered({}, [Alteration("retention.ms", "set", "5"), Alteration("retention.ms", "delete")])
    assert caught.value.error == refusals.INVALID_REQUEST


def test_setting_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="has no value") as caught:
        altered({}, [Alteration("retention.ms", "set", None)])
    assert caught.value.error == refusals.INVALID_REQUEST


def test_deleting_what_is_not_set_changes_nothing_even_if_it_does_not_exist() -> None:
    assert altered({"retention.ms": "5"}, [Alteration("retention", "delete")]) == {"retention.ms": "5"}

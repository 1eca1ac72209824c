"""Each alert rule of `deploy/prometheus` is raised by what it is for, and on a quiet day none is.

Prometheus' own promtool says so. `make test-alarms` builds it; elsewhere the rules are only read.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from promtool import figures_not_shown, promtool

ROOT: Final = Path(__file__).parent.parent.parent
RULES: Final = ROOT / "deploy/prometheus/semel.rules.yml"
GROUPS: Final[list[dict[str, Any]]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS: Final = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}

# A quiet hour, by the minute: an active broker and one that stands by, and an application.
ACTIVE, STANDBY = 'job="semel",instance="a:9464"', 'job="semel",instance="b:9464"'
QUIET: Final[dict[str, str]] = {
    **{f"up{{{one}}}": "1x60" for one in (ACTIVE, STANDBY)},
    **{f"semel_up{{{one}}}": "1x60" for one in (ACTIVE, STANDBY)},
    f"semel_active{{{ACTIVE}}}": "1x60",
    f"semel_active{{{STANDBY}}}": "0x60",
    **{f"semel_store_failing_seconds{{{one}}}": "0x60" for one in (ACTIVE, STANDBY)},
    f'semel_store_errors_total{{kind="unsure",{ACTIVE}}}': "0+1x60",
    f'semel_store_errors_total{{kind="full",{ACTIVE}}}': "0x60",
    f"semel_standby_lag_bytes{{{ACTIVE}}}": "0x60",
    f"semel_standby_lag_bytes{{{STANDBY}}}": "0+1000000x15 0x44",
    f"semel_fsyncs_total{{{ACTIVE}}}": "1+100x60",
    f'semel_batches_total{{outcome="accepted",{ACTIVE}}}': "0+1000x60",
    f'semel_batches_total{{outcome="duplicate",{ACTIVE}}}': "0+1x60",
    f'semel_batches_total{{outcome="gap",{ACTIVE}}}': "0x60",
    f'semel_batches_total{{outcome="fenced",{ACTIVE}}}': "0x60",
    f'semel_transactions_total{{outcome="committed",{ACTIVE}}}': "0+60x60",
    f'semel_transactions_total{{outcome="timed_out",{ACTIVE}}}': "0x60",
    f'semel_group_events_total{{event="group_rebalanced",{ACTIVE}}}': "0+1x60",
    f'semel_group_events_total{{event="member_expired",{ACTIVE}}}': "0x60",
    **{
        f"semel_{name}{{{ACTIVE}}}": "0x60"
        for name in (
            *(
                "damaged_segments",
                "failed_reads_total",
                "storage_errors_total",
                "set_aside_files",
                "connections_refused_total",
                "refused_producers_total",
            ),
            *("compaction_unopened_batches_total", "lost_leases_total", "takeovers_total", "store_under_way_bytes"),
        )
    },
    f"semel_open_transactions{{{ACTIVE}}}": "12x60",
    f"semel_disk_free_bytes{{{ACTIVE}}}": "500000000000x60",
    f"semel_disk_bytes{{{ACTIVE}}}": "1000000000000x60",
    f"semel_logins_refused_total{{{ACTIVE}}}": "0+1x60",
    f"semel_handshakes_refused_total{{{ACTIVE}}}": "0+1x60",
    f"semel_access_denied_total{{{ACTIVE}}}": "0x60",
    # In 90 days: the time of these tests begins at 0.
    f"semel_certificate_expiry_timestamp_seconds{{{ACTIVE}}}": "7776000x60",
    f"semel_transactional_ids{{{ACTIVE}}}": "400x60",
    f"semel_group_offsets{{{ACTIVE}}}": "9000x60",
    f"semel_producer_states{{{ACTIVE}}}": "9000x60",
    f"semel_store_slots_total{{{ACTIVE}}}": "0+60x60",
    f"semel_cache_fetched_bytes_total{{{ACTIVE}}}": "0+1000x60",
    f'semel_request_seconds_bucket{{api="Produce",le="0.1",{ACTIVE}}}': "0+1000x60",
    f'semel_request_seconds_bucket{{api="Produce",le="2.0",{ACTIVE}}}': "0+1000x60",
    f'semel_request_seconds_bucket{{api="Produce",le="+Inf",{ACTIVE}}}': "0+1000x60",
    "semel_outbox_oldest_seconds": "3x60",
    "semel_outbox_quarantined": "0x60",
    'semel_inbox_quarantined{consumer="ledger",state="held"}': "0x60",
    'semel_service_ready{service="inbox"}': "1x60",
    'semel_inbox_quarantined{consumer="ledger",state="due"}': "2x60",
    'semel_http_claims_total{outcome="accepted"}': "0+1000x60",
    'semel_http_claims_total{outcome="mismatch"}': "0x60",
    'semel_http_claims_total{outcome="conflict"}': "0+2x60",
    'semel_http_claims_total{outcome="fenced"}': "0x60",
    "semel_http_steps_in_doubt_total": "0x60",
    "semel_outbox_fenced_total": "0x60",
    "semel_publish_fenced_total": "0x60",
    'semel_retries_total{outcome="granted"}': "0+9x60",
    'semel_retries_total{outcome="refused"}': "0x60",
    "semel_watch_up": "1x60",
}
# What happens after half an hour: the series that change, or that end (`stale`), and the alarms that have to be raised.
RAISED: Final = 'group by (alertname) (ALERTS{alertstate="firing"})'
Change = tuple[Mapping[str, str], set[str]]
FAULTS: Final[dict[str, Change]] = {
    "the active broker cannot be scraped any more": (
        {f"up{{{ACTIVE}}}": "1x29 0x30", "*a:9464": "stale"},
        {"SemelBrokerIsGone", "SemelNobodyIsActive"},
    ),
    "the standby cannot be scraped any more": (
        {f"up{{{STANDBY}}}": "1x29 0x30", "*b:9464": "stale"},
        {"SemelBrokerIsGone", "SemelNoStandby"},
    ),
    "no broker is known to Prometheus any more": (
        {"*:9464": "stale", f"up{{{ACTIVE}}}": "1x29 stale", f"up{{{STANDBY}}}": "1x29 stale"},
        {"SemelBrokerIsGone", "SemelNobodyIsActive", "SemelNoStandby"},
    ),
    "the broker is restarted all the time": (
        {f"semel_fsyncs_total{{{ACTIVE}}}": "1+100x29 5 1 5 1 5 1+100x25"},
        {"SemelBrokerStartsAgainAndAgain"},
    ),
    "the disk fails": ({f"semel_up{{{ACTIVE}}}": "1x29 0x30"}, {"SemelDiskHasFailed"}),
    "the disk is full": ({f"semel_storage_errors_total{{{ACTIVE}}}": "0x29 3x30"}, {"SemelWritesAreRefused"}),
    "files were put aside": ({f"semel_set_aside_files{{{ACTIVE}}}": "0x29 2x30"}, {"SemelFilesWereSetAside"}),
    "records cannot be read": ({f"semel_failed_reads_total{{{ACTIVE}}}": "0x29 3x30"}, {"SemelReadsFail"}),
    "a segment is damaged": ({f"semel_damaged_segments{{{ACTIVE}}}": "0x29 1x30"}, {"SemelSegmentIsDamaged"}),
    "a producer leaves a gap": (
        {f'semel_batches_total{{outcome="gap",{ACTIVE}}}': "0x29 1x30"},
        {"SemelProducerLeftAGap"},
    ),
    "a zombie writes": ({f'semel_batches_total{{outcome="fenced",{ACTIVE}}}': "0x29 1x30"}, {"SemelZombieWrites"}),
    "a worker hangs": (
        {f'semel_transactions_total{{outcome="timed_out",{ACTIVE}}}': "0x29 1x30"},
        {"SemelTransactionsTimeOut"},
    ),
    "a member dies": (
        {f'semel_group_events_total{{event="member_expired",{ACTIVE}}}': "0x29 1x30"},
        {"SemelMembersExpire"},
    ),
    "one address takes all connections": (
        {f"semel_connections_refused_total{{{ACTIVE}}}": "0x29 7x30"},
        {"SemelConnectionsAreRefused"},
    ),
    "one address takes all producers": (
        {f"semel_refused_producers_total{{{ACTIVE}}}": "0x29 7x30"},
        {"SemelProducersAreRefused"},
    ),
    "a batch cannot be opened": (
        {f"semel_compaction_unopened_batches_total{{{ACTIVE}}}": "0x29 1x30"},
        {"SemelCompactionSkips"},
    ),
    "groups commit offsets of ever more names": (
        {f"semel_group_offsets{{{ACTIVE}}}": "9000x29 900000x30"},
        {"SemelLimitIsNear"},
    ),
    "the disk becomes slow": (
        {f'semel_request_seconds_bucket{{api="Produce",le="0.1",{ACTIVE}}}': "0+1000x29 30000x30"},
        {"SemelProduceIsSlow"},
    ),
    "two brokers believe to be active": (
        {f"semel_active{{{STANDBY}}}": "0x29 1x30"},
        {"SemelTwoAreActive", "SemelNoStandby"},
    ),
    "the standby reads too slowly": (
        {f"semel_standby_lag_bytes{{{STANDBY}}}": "0x29 20000000+1000x30"},
        {"SemelStandbyIsBehind"},
    ),
    "brokers take over again and again": ({f"semel_takeovers_total{{{ACTIVE}}}": "0x29 4x30"}, {"SemelTakesOverOften"}),
    "the store does not renew the lease": (
        {f"semel_lost_leases_total{{{ACTIVE}}}": "0x29 1x30"},
        {"SemelLeaseWasLost"},
    ),
    "the store does not answer": (
        {
            f"semel_store_under_way_bytes{{{ACTIVE}}}": "0x29 65536x30",
            f"semel_store_slots_total{{{ACTIVE}}}": "0+60x29 1800x30",
        },
        {"SemelStoreDoesNotAnswer"},
    ),
    "the store is down": (
        {
            f"semel_store_failing_seconds{{{ACTIVE}}}": "0x29 60+60x30",
            f"semel_up{{{ACTIVE}}}": "1x29 0x30",
            f"semel_active{{{ACTIVE}}}": "1x29 0x30",
        },
        {"SemelStoreDoesNotAnswer", "SemelNobodyIsActive"},
    ),
    "the store is full": (
        {f'semel_store_errors_total{{kind="full",{ACTIVE}}}': "0x29 0+9x30"},
        {"SemelStoreNeedsAPerson"},
    ),
    "the disk fills up": (
        {f"semel_disk_free_bytes{{{ACTIVE}}}": "500000000000x29 150000000000x30"},
        {"SemelDiskFillsUp"},
    ),
    "the disk is almost full": (
        {f"semel_disk_free_bytes{{{ACTIVE}}}": "500000000000x29 40000000000x30"},
        {"SemelDiskFillsUp", "SemelDiskIsAlmostFull"},
    ),
    "somebody guesses passwords": (
        {f"semel_logins_refused_total{{{ACTIVE}}}": "0+1x29 30+60x30"},
        {"SemelLoginsAreRefused"},
    ),
    "clients have an old certificate": (
        {f"semel_handshakes_refused_total{{{ACTIVE}}}": "0+1x29 30+60x30"},
        {"SemelLoginsAreRefused"},
    ),
    "a client lacks a right": ({f"semel_access_denied_total{{{ACTIVE}}}": "0x29 1x30"}, {"SemelAccessIsDenied"}),
    "a certificate has 20 days left": (
        {f"semel_certificate_expiry_timestamp_seconds{{{ACTIVE}}}": "7776000x29 1728000x30"},
        {"SemelCertificateExpires"},
    ),
    "a certificate has 5 days left": (
        {f"semel_certificate_expiry_timestamp_seconds{{{ACTIVE}}}": "7776000x29 432000x30"},
        {"SemelCertificateExpires", "SemelCertificateExpiresThisWeek"},
    ),
    "a certificate has 12 hours left": (
        {f"semel_certificate_expiry_timestamp_seconds{{{ACTIVE}}}": "7776000x29 43200x30"},
        {"SemelCertificateExpires", "SemelCertificateExpiresThisWeek", "SemelCertificateExpiresToday"},
    ),
    "consumers read what the cache has not": (
        {f"semel_cache_fetched_bytes_total{{{ACTIVE}}}": "0+1000x29 30000+900000000x30"},
        {"SemelCacheIsTooSmall"},
    ),
    "the relay does not run": ({"semel_outbox_oldest_seconds": "3x29 0+60x30"}, {"OutboxIsNotRelayed"}),
    "a message is refused": ({"semel_outbox_quarantined": "0x29 1x30"}, {"MessageWasRefused"}),
    "an event waits for a person": (
        {'semel_inbox_quarantined{consumer="ledger",state="held"}': "0x29 1x30"},
        {"EventWasPutAside"},
    ),
    "a key is used twice": (
        {'semel_http_claims_total{outcome="mismatch"}': "0x29 1x30"},
        {"KeyWasUsedForAnotherRequest"},
    ),
    "requests hang": ({'semel_http_claims_total{outcome="conflict"}': "0+2x29 100+300x30"}, {"RequestsDoNotEnd"}),
    "a lease is lost": ({'semel_http_claims_total{outcome="fenced"}': "0x29 1x30"}, {"LeaseWasLost"}),
    "a call is in doubt": ({"semel_http_steps_in_doubt_total": "0x29 1x30"}, {"CallMayHaveBeenRepeated"}),
    "a second relay fences the first": ({"semel_outbox_fenced_total": "0x29 1x30"}, {"TwoRelays"}),
    "retries are used up": ({'semel_retries_total{outcome="refused"}': "0x29 0+9x30"}, {"RetriesAreUsedUp"}),
    "the database is gone": ({"semel_watch_up": "1x29 0x30"}, {"DatabaseIsNotSeen"}),
    "a service is not ready": ({'semel_service_ready{service="inbox"}': "1x29 0x30"}, {"ServiceIsNotReady"}),
    "the process that watches is gone": ({"semel_watch_up": "1x29 stale"}, {"NobodyWatches"}),
}


def test_each_alarm_has_a_fault_that_raises_it() -> None:
    assert set.union(*(raised for _, raised in FAULTS.values())) == set(ALERTS)


def test_each_alarm_says_how_urgent_it_is_and_what_to_do() -> None:
    wrong = [
        name
        for name, rule in ALERTS.items()
        if rule["labels"]["severity"] not in ("page", "ticket") or len(rule["annotations"]["summary"]) < 30
    ]
    assert wrong == []


def test_each_figure_is_one_that_semel_shows() -> None:
    assert figures_not_shown((rule["expr"] for rule in ALERTS.values()), "bucket") == set()


def series_under(change: Mapping[str, str]) -> dict[str, str]:
    """The quiet hour with some series changed; `*WORDS` stands for all whose names contain the words."""
    series = dict(QUIET)
    for name, values in change.items():
        if name.startswith("*"):
            ending = [one for one in series if name[1:] in one and one not in change]
            series |= {one: re.sub(r"x60$", "x29 stale", series[one]) for one in ending}
        else:
            assert name in series, name
            series[name] = values
    return series


def test_each_alarm_is_raised_by_its_fault_and_none_on_a_quiet_day(tmp_path: Path) -> None:
    days: dict[str, Change] = {"a quiet day": ({}, set()), **FAULTS}
    tests = [
        {
            "name": day,
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series_under(change).items()],
            "promql_expr_test": [
                {"expr": RAISED, "eval_time": "29m", "exp_samples": []},
                {
                    "expr": f"max by (alertname) (max_over_time(({RAISED})[31m:1m]))",
                    "eval_time": "59m",
                    "exp_samples": [{"labels": f'{{alertname="{alarm}"}}', "value": 1} for alarm in sorted(raised)],
                },
            ],
        }
        for day, (change, raised) in days.items()
    ]
    file = tmp_path / "alarms.test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": tests}))
    promtool("test", "rules", str(file))

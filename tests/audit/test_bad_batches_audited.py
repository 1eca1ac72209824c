"""A topic with a batch that nobody can read: the audit names it, and never calls such a topic clean."""

import logging

import pytest

from asking import Asker
from semel.audit import AuditFailed, audit
from semel.testing.broker import FaultyBroker
from semel.wire.batch import close_batch, read_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import PRODUCE


@pytest.fixture
def topic(semel_broker: FaultyBroker) -> str:
    """Two records, and between them a batch that says it is compressed."""
    good = encode_batch([Record(b"v", b"payment-1")])
    bad = close_batch(read_header(encode_batch([Record(b"v")], codec="gzip")), b"\x1f\x8bthis is no gzip")
    with Asker(semel_broker.bootstrap) as ask:
        ask.create("payments")
        for batch in (good, bad, encode_batch([Record(b"v", b"payment-2")])):
            data = [{"name": "payments", "partition_data": [{"index": 0, "records": bytes(batch)}]}]
            answer = ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == 0
    return f"semel://{semel_broker.bootstrap}/payments?id=key"


def test_an_audit_that_comes_to_a_batch_nobody_can_read_says_which(topic: str) -> None:
    with pytest.raises(AuditFailed, match=r"the batch at offsets 1 to 1 cannot be read: .*on_bad_batch=quarantine"):
        audit(topic, topic, processes=1)


def test_an_audit_that_goes_on_after_it_is_not_clean(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        verdict = audit(f"{topic}&on_bad_batch=quarantine", f"{topic}&on_bad_batch=quarantine", processes=1)
    assert (verdict.source.rows, verdict.source.without_id) == (2, 1)
    assert not verdict.is_clean
    assert "the batch at offsets 1 to 1 cannot be read" in caplog.text


def test_another_word_for_it_is_refused() -> None:
    with pytest.raises(AuditFailed, match="on_bad_batch is fail or quarantine, not 'skip'"):
        audit("semel://127.0.0.1:1/payments?id=key&on_bad_batch=skip", "parquet:/nowhere?id=key")

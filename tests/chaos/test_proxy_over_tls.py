"""TLS passes through the proxy, which cannot read it, and an acknowledgement is lost there all the same."""

from pathlib import Path

from confluent_kafka import Producer

from semel.chaos.plan import Fault
from semel.chaos.proxy import ChaosProxy
from semel.log.broker.certificates import TlsSettings
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.testing.broker import FaultyBroker
from semel.testing.certificates import Authority
from semel.testing.ports import free_port


def test_an_answer_over_tls_is_lost_and_each_record_is_there_once(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    front, back = free_port(), free_port()
    # The proxy cannot lead clients to itself by what the broker answers, so the broker does.
    listener = Listener("SEALED", SecurityProtocol.SSL, "localhost", back, advertised_port=front)
    settings = {"tls": TlsSettings(*authority.issue("broker", "localhost")), "super_users": ["User:ANONYMOUS"]}
    with (
        FaultyBroker(listeners=[listener, Listener("OPEN")], **settings) as broker,
        ChaosProxy(f"localhost:{back}", host="localhost", port=front) as proxy,
    ):
        login = {"security.protocol": "SSL", "ssl.ca.location": authority.file, "log_level": 0}
        client = {"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        producer = Producer({**client, **login})
        errors: list[object] = []

        def produce(value: str) -> None:
            producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(60) == 0

        produce("first")
        connections = proxy.connections
        proxy.arm(Fault.DROP_ACK)
        produce("second")
        produce("third")
        assert proxy.fired[Fault.DROP_ACK] == 1
        assert proxy.connections > connections
        assert errors == [None] * 3
        assert [record.value for record in broker.log("orders")] == [b"first", b"second", b"third"]

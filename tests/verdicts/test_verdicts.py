"""`make verdicts` asks semel and Apache Kafka the same. Here semel's half of it, for two principals."""

from verdicts.principals import ROUNDS, BrokerByAddress
from verdicts.run import Side, was_allowed


def test_each_principal_is_known_by_his_address_and_gets_what_the_rules_say() -> None:
    with BrokerByAddress() as broker:
        side = Side("semel", broker.bootstrap, logs_in=False)
        try:
            side.prepare()
            side.obey(ROUNDS["the cluster"])
            allowed = {
                name: {call for call, answer in side.ask_all(name).items() if was_allowed(answer)}
                for name in ("alice", "bob")
            }
        finally:
            side.close()
    assert allowed["alice"] - allowed["bob"]
    assert allowed["bob"] - allowed["alice"]

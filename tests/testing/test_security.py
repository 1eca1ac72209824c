"""A broker of tests asks its clients to log in, and makes what they need for it: certificates, and users."""

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import semel
from secured import CLIENTS, REFUSALS
from semel.testing.broker import FaultyBroker
from semel.testing.security import Security

PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_with_the_settings_of_the_broker_gets_in(protocol: str) -> None:
    """They are those of librdkafka, and of semel's own client."""
    with semel.broker(security=protocol) as broker:
        settings = dict(broker.client_settings)
        assert settings.pop("bootstrap.servers") == broker.bootstrap
        for client in ("confluent", "semel"):
            assert CLIENTS[client](broker.bootstrap, settings) == "written"


@pytest.mark.semel_broker(security="SASL_SSL")
def test_the_fixture_lets_in_the_right_password_and_refuses_a_wrong_one(semel_broker: FaultyBroker) -> None:
    settings = {name: value for name, value in semel_broker.client_settings.items() if name != "bootstrap.servers"}
    for name, write in CLIENTS.items():
        assert write(semel_broker.bootstrap, settings) == "written"
        assert write(semel_broker.bootstrap, {**settings, "sasl.password": "wrong"}) in REFUSALS[name]
    assert len(semel_broker.log("logins")) == len(CLIENTS) - 1


@pytest.mark.semel_broker(security="SASL_SSL")
@pytest.mark.parametrize("number", [1, 2])
def test_each_test_begins_with_one_user_who_may_do_everything(semel_broker: FaultyBroker, number: int) -> None:
    """A user whom a test has added is gone, and has no rights while it is there."""
    assert semel_broker.users() == [semel_broker.login.user]
    semel_broker.create_topic("orders")
    semel_broker.add_user("stranger", f"password {number}")
    assert semel_broker.users() == ["stranger", semel_broker.login.user]
    stranger = {**semel_broker.client_settings, "sasl.username": "stranger", "sasl.password": f"password {number}"}
    stranger.pop("bootstrap.servers")
    assert CLIENTS["aiokafka"](semel_broker.bootstrap, stranger) == "TopicAuthorizationFailedError"


def test_the_login_outlives_a_kill_and_a_restart() -> None:
    with FaultyBroker(security="SASL_SSL") as broker:
        settings = broker.client_settings
        broker.add_user("app", "secret")
        broker.kill()
        broker.restart()
        assert broker.client_settings == settings
        assert broker.users() == ["app", broker.login.user]
        settings.pop("bootstrap.servers")
        assert CLIENTS["confluent"](broker.bootstrap, settings) == "written"


def test_a_broker_of_an_event_loop_takes_the_same() -> None:
    async def scenario() -> str:
        security = Security("SASL_PLAINTEXT")
        async with semel.Broker(**security.settings) as broker:
            await security.begin(broker)
            login = security.client_settings
            return await asyncio.to_thread(CLIENTS["confluent"], broker.bootstrap, login)

    assert asyncio.run(scenario()) == "written"


def test_nothing_shows_the_password_and_only_the_user_of_the_machine_can_read_the_keys() -> None:
    with semel.broker(security="SSL") as broker:
        key = Path(str(broker.login.key))
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    with semel.broker(security="SASL_PLAINTEXT") as broker:
        assert str(broker.login.password) not in repr(broker.login)


def test_the_certificates_are_gone_when_the_program_ends() -> None:
    program = "import semel\nwith semel.broker(security='SASL_SSL') as broker: print(broker.login.authority)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith(".pem\n")
    assert not Path(ran.stdout.strip()).parent.exists()


def test_a_protocol_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(
        ValueError, match="'TLS' is not a protocol of a listener: choose PLAINTEXT, SSL, SASL_PLAINTEXT"
    ):
        semel.broker(security="TLS")


@pytest.mark.parametrize("name", ["listeners", "super_users", "tls", "store"])
def test_what_security_makes_itself_is_refused_besides(name: str) -> None:
    with pytest.raises(TypeError, match=f"security='SSL' cannot be combined with {name}"):
        semel.broker(security="SSL", **{name: None})

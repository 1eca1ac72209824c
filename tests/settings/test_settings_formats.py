"""What reading a file promises: the settings as Java, JSON and TOML mean them, by role where the file has roles."""

import pytest

from semel.settings import Role
from semel.settings.formats import NotAConfiguration, read


def test_properties_are_read_as_java_reads_them() -> None:
    text = r"""
        # a comment
        ! another one
        acks=all
        enable.idempotence : true
        retries 5
        sasl.jaas.config = org.apache.Login required \
            username="a=b";
        a\ name\=with\:all=\u00e4\tb
        empty=
        alone
    """
    assert read(text, "properties") == {
        None: {
            "acks": "all",
            "enable.idempotence": "true",
            "retries": "5",
            "sasl.jaas.config": 'org.apache.Login required username="a=b";',
            "a name=with:all": "ä\tb",
            "empty": "",
            "alone": "",
        }
    }


def test_names_with_dots_mean_the_same_in_toml_with_and_without_quotes() -> None:
    quoted, bare = '"enable.idempotence" = true\nacks = "all"', 'enable.idempotence = true\nacks = "all"'
    assert read(quoted, "toml") == read(bare, "toml") == {None: {"enable.idempotence": True, "acks": "all"}}


def test_what_belongs_to_a_role_is_given_to_it_and_the_rest_to_both() -> None:
    text = '{"client.id": "a", "producer": {"acks": 1}, "consumer": {"isolation.level": "read_committed"}}'
    assert read(text, "json") == {
        Role.PRODUCER: {"client.id": "a", "acks": 1},
        Role.CONSUMER: {"client.id": "a", "isolation.level": "read_committed"},
    }


@pytest.mark.parametrize(("text", "form"), [("[1]", "json"), ("{", "json"), ("a = ", "toml")])
def test_what_is_no_configuration_is_said_to_be_none(text: str, form: str) -> None:
    with pytest.raises(NotAConfiguration, match=form.upper()):
        read(text, form)

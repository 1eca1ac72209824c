"""The effective settings of a configuration: the values that the user set, parsed and under Java's names, and the
client's defaults for the others. It says what a client does; `conflicts` judges whether that is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from semel.settings.clients import TABLES, Client, Known, Role, Unreadable, Value, read_acks, read_number, read_switch

_SWITCHES: Final = ("enable.idempotence", "enable.auto.commit", "enable.auto.offset.store")
_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "isolation.level": {"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"},
    "auto.offset.reset": {"earliest": "earliest", "latest": "latest", "none": "none"},
    "metadata.recovery.strategy": {"none": "none", "rebootstrap": "rebootstrap"},
}
# librdkafka has other words.
_RESETS_OF_LIBRDKAFKA: Final = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
    "error": "none",
}
# The most requests under way for which the broker recognises retries of an idempotent producer; librdkafka lowers its
# setting to this number.
IN_FLIGHT_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Unread:
    """A setting whose value cannot be parsed, and the values that it can have."""

    name: str
    value: object
    expected: str


class Configuration:
    """The settings of one role of one client. `value` is the value that the client uses, and `is_set` says whether the
    user set it.
    """

    def __init__(self, client: Client, role: Role, raw: Mapping[str, object]) -> None:
        self.client = client
        self.role = role
        self.unread: list[Unread] = []
        self._table = TABLES[client][role]
        self._spellings: dict[str, str] = {}
        self._values: dict[str, Value] = {}
        for java, known in self._table.items():
            for name in (known.name, *known.other_names):
                if name in raw and raw[name] is not None:
                    self._take(java, name, raw[name])

    def _take(self, java: str, name: str, value: object) -> None:
        self._spellings[java] = name
        try:
            self._values[java] = self._read(java, value)
        except Unreadable as unreadable:
            self.unread.append(Unread(name, value, str(unreadable)))

    def _read(self, java: str, value: object) -> Value:
        if java in _SWITCHES:
            return read_switch(value)
        if java == "acks":
            return read_acks(value)
        if java == "transactional.id":
            return str(value)
        if java not in _WORDS:
            return read_number(value)
        word = str(value).strip().lower()
        words = _WORDS[java]
        if java == "auto.offset.reset" and self.client is Client.CONFLUENT:
            words = _RESETS_OF_LIBRDKAFKA
        if java == "auto.offset.reset" and self.client is Client.JAVA and word.startswith("by_duration:"):
            return "none"
        if word not in words:
            raise Unreadable(", ".join(words))
        return words[word]

    def has(self, java: str) -> bool:
        """Whether this client has such a setting."""
        return java in self._table

    def is_set(self, java: str) -> bool:
        return java in self._values

    def name(self, java: str) -> str:
        """The name of the setting, as the user wrote it, or as the client writes it."""
        return self._spellings.get(java, self._known(java).name)

    def shown(self, java: str) -> str:
        """The setting with its value, as people write it."""
        value = self.value(java)
        return f"{self.name(java)}={str(value).lower() if isinstance(value, bool) else value}"

    def value(self, java: str) -> Value | None:
        """The effective value."""
        return self._values.get(java, self._known(java).default)

    def number(self, java: str) -> int:
        """The effective value of a setting whose values are all numbers."""
        value = self.value(java)
        assert isinstance(value, int)
        return value

    @property
    def transactional(self) -> bool:
        return bool(self._values.get("transactional.id"))

    @property
    def wants_idempotence(self) -> bool:
        """Whether the user has turned idempotence on, so that the client refuses settings that contradict it."""
        return self.transactional or self._values.get("enable.idempotence") is True

    @property
    def forgoes_idempotence(self) -> list[str]:
        """The settings that make the client silently turn its idempotence off."""
        if self.wants_idempotence or self.client not in (Client.JAVA, Client.KAFKA_PYTHON):
            return []
        against = []
        if self.value("acks") != "all":
            against.append("acks")
        if self.number("retries") == 0:
            against.append("retries")
        if self.client is Client.KAFKA_PYTHON and self.number("max.in.flight.requests.per.connection") > IN_FLIGHT_MAX:
            against.append("max.in.flight.requests.per.connection")
        return against

    @property
    def idempotent(self) -> bool:
        """Whether the client numbers its batches."""
        return self.wants_idempotence or (bool(self.value("enable.idempotence")) and not self.forgoes_idempotence)

    @property
    def in_flight(self) -> int:
        """How many requests may be under way at a time."""
        java = "max.in.flight.requests.per.connection"
        if not self.has(java):
            return 1
        if self.idempotent and not self.is_set(java):
            return IN_FLIGHT_MAX
        return self.number(java)

    @property
    def repeats(self) -> bool:
        """Whether the client sends a batch again that was not answered."""
        if not self.has("retries"):
            return self.value("acks") != "0"
        return self.number("retries") > 0

    def _known(self, java: str) -> Known:
        return self._table[java]

"""What the messages of Kafka's protocol are made of: data classes whose fields know how they look in each version.

    class MetadataRequestTopic(Struct):
        topic_id: bytes = field("uuid", since=10, default=NO_ID)
        name: str | None = field("string", null_since=10)

Each message is one class for all of its versions. Its constructor wants what every version has and the protocol knows
no default for. A field that a version lacks is not written, and has its default when it is read. An array is any
sequence, and a tuple when it was read; a time or a duration is a number of milliseconds, an error code a number, an id
16 bytes. `semel.wire.kafka` has the classes, which `make messages` writes.

A class makes its constructor when the first object is made, because most of them get none in most processes. This file
must never know a particular message.
"""

from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, dataclass_transform

# An id of a topic that stands for none.
NO_ID: Final = bytes(16)

# No version is as high.
NEVER: Final = 1 << 16

A = TypeVar("A", covariant=True)


class Field(NamedTuple):
    """How a field looks: its type, which is a name of Kafka's or a struct, and the versions that have it."""

    kind: Any
    is_array: bool
    since: int
    # These versions are excluded.
    until: int
    null_since: int
    null_until: int
    tag: int | None
    # What it is if it is left out, or a version lacks it; `REQUIRED` if every version has it, and it has no default.
    default: Any


REQUIRED: Final[Any] = object()


def field(
    kind: Any,
    *,
    since: int = 0,
    until: int = NEVER,
    null_since: int = NEVER,
    null_until: int = NEVER,
    tag: int | None = None,
    default: Any = REQUIRED,
) -> Any:
    """A field of this type."""
    return Field(kind, False, since, until, null_since, null_until, tag, default)


def array(kind: Any, **more: Any) -> Any:
    """The same for an array of values of this type."""
    return field(kind, **more)._replace(is_array=True)


@dataclass_transform(kw_only_default=True, field_specifiers=(field, array))
class _StructType(type):
    """Gives a class slots for its fields, and a constructor."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "_StructType":
        own = {key: value for key, value in namespace.items() if type(value) is Field}
        for key in own:
            del namespace[key]
        namespace["__slots__"] = tuple(own)
        made = super().__new__(cls, name, bases, namespace)
        if own:
            made.FIELDS = own  # type: ignore[attr-defined]
            made.__init__ = _first_init(made)  # type: ignore[misc]
        return made


class Struct(metaclass=_StructType):
    """A message, or an element of one of its arrays. Two are equal if all of their fields are."""

    __slots__ = ()

    # In the order of the wire.
    FIELDS: ClassVar[dict[str, Field]] = {}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({shown})"


class Response(Struct):
    """An answer, with the key of its API."""

    KEY: ClassVar[int]


class Request(Struct, Generic[A]):
    """A request, with the key of its API. `A` is the answer to it."""

    KEY: ClassVar[int]


def _first_init(cls: Any) -> Any:
    def first_init(self: Any, **values: Any) -> None:
        cls.__init__ = _compiled_init(cls)
        self.__init__(**values)

    return first_init


def _compiled_init(cls: Any) -> Any:
    """The constructor, which takes the fields by name."""
    defaults = {f"_{name}": field.default for name, field in cls.FIELDS.items() if field.default is not REQUIRED}
    names = [name if field.default is REQUIRED else f"{name}=_{name}" for name, field in cls.FIELDS.items()]
    lines = [f"def __init__(self, *, {', '.join(names)}):", *(f" self.{name} = {name}" for name in cls.FIELDS)]
    exec("\n".join(lines), defaults)
    return defaults["__init__"]

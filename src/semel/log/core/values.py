"""Immutable values: `@value` does with a class what `@dataclass(frozen=True, slots=True)` does, in a tenth of the time.

A start of the broker makes sixty such classes, and every command and every test that starts one waits for them.
`dataclass` takes long because it compiles six methods for each class. Here five of them are the same functions for all
classes, and `__init__` is compiled with the first object, since most classes get none in most processes.

`fields`, `replace` and `is_dataclass` of `dataclasses` work as on any data class. This file must never support more
than fields with and without a default: a class that needs a factory or `__post_init__` is a plain data class.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """The class with slots, and with the methods of a frozen data class."""
    if cls.__doc__ is None:
        # Otherwise `dataclass` writes the signature there, and to find it takes more time than everything else.
        cls.__doc__ = cls.__name__
    new_class: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    names = new_class.__match_args__
    for name, method in _methods(new_class, names, attrgetter(*names)).items():
        setattr(new_class, name, method)
    typed_class: type[T] = new_class
    return typed_class


def _methods(cls: Any, names: tuple[str, ...], get: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compiled_init(cls)
        self.__init__(*args, **kwargs)

    def eq(self: Any, other: Any) -> Any:
        return get(self) == get(other) if type(other) is type(self) else NotImplemented

    def hashed(self: Any) -> int:
        return hash(get(self))

    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def reduced(self: Any) -> tuple[Any, tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in names)

    return {
        "__init__": first_init,
        "__eq__": eq,
        "__hash__": hashed,
        "__repr__": shown,
        "__reduce__": reduced,
        "__setattr__": _refuse_assignment,
        "__delattr__": _refuse_deletion,
    }


def _compiled_init(cls: Any) -> Any:
    of_class = fields(cls)
    parameters = ", ".join(f.name if f.default is MISSING else f"{f.name}=defaults[{f.name!r}]" for f in of_class)
    lines = [f" set_field(self, {f.name!r}, {f.name})" for f in of_class]
    namespace: dict[str, Any] = {}
    global_names = {"set_field": object.__setattr__, "defaults": {f.name: f.default for f in of_class}}
    exec("\n".join((f"def __init__(self, {parameters}):", *lines)), global_names, namespace)
    return namespace["__init__"]


def _refuse_assignment(self: Any, name: str, _: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")

"""Which values would come back from msgpack as another type, where no annotation says what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, cast

from msgspec import inspect

Check: TypeAlias = Callable[[Any, Any], str | None]
"""Given what went in and what came back: None when it is the same, else a sentence about what became what."""

_SEQUENCES: Final = (inspect.ListType, inspect.VarTupleType, inspect.CollectionType)


def loose_check(kind: object) -> Check | None:
    """The check for values of an annotated type; None when the annotation leaves nothing open.

    Only what stands directly in the annotation is looked at (`list[Any]`, `dict[str, object] | None`), not
    the fields of classes.
    """
    try:
        return _check(inspect.type_info(cast("type[object]", kind)))
    except (TypeError, NotImplementedError):
        return None


def same(given: object, back: object) -> str | None:
    """For values without any type: the same types at every depth, or what became what."""
    if type(given) is not type(back):
        return f"a {type(given).__qualname__} would come back as {type(back).__qualname__}"
    if isinstance(given, list | tuple):
        return _first(map(same, cast("list[object]", given), cast("list[object]", back)))
    if isinstance(given, dict):
        went, came = cast("dict[object, object]", given), cast("dict[object, object]", back)
        return _first(map(same, went, came)) or _first(map(same, went.values(), came.values()))
    return None


def _check(kind: inspect.Type) -> Check | None:
    if isinstance(kind, inspect.AnyType) or (isinstance(kind, inspect.CustomType) and kind.cls is object):
        return same
    if isinstance(kind, _SEQUENCES):
        return _of_items(_check(kind.item_type))
    if isinstance(kind, inspect.DictType):
        return _of_dict(_check(kind.key_type), _check(kind.value_type))
    if isinstance(kind, inspect.TupleType):
        return _of_tuple([_check(item) for item in kind.item_types])
    if isinstance(kind, inspect.UnionType):
        return _of_union(kind)
    return None


def _of_items(check: Check | None) -> Check | None:
    return None if check is None else lambda given, back: _first(map(check, given, back))


def _of_dict(key: Check | None, value: Check | None) -> Check | None:
    if key is None and value is None:
        return None

    def of_dict(given: dict[object, object], back: dict[object, object]) -> str | None:
        changed = _first(map(key, given, back)) if key is not None else None
        if changed is None and value is not None:
            changed = _first(map(value, given.values(), back.values()))
        return changed

    return of_dict


def _of_tuple(checks: list[Check | None]) -> Check | None:
    if not any(checks):
        return None
    return lambda given, back: _first(
        check(one, other) for check, one, other in zip(checks, given, back, strict=True) if check is not None
    )


def _of_union(kind: inspect.UnionType) -> Check | None:
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    checks = [_check(member) for member in members]
    if not any(checks):
        return None
    only = checks[0] if len(checks) == 1 and checks[0] is not None else same
    return lambda given, back: None if given is None else only(given, back)


def _first(changes: Iterable[str | None]) -> str | None:
    return next((change for change in changes if change is not None), None)

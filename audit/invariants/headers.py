"""The part of S13 that compares what `open` tells with the run's header."""

import msgspec


def without_name(text: str | bytes) -> object:
    """The JSON of a header as a value, without the model's name, which may be a path."""
    value: object = msgspec.json.decode(text)
    return {k: v for k, v in value.items() if k != "name"} if isinstance(value, dict) else value


def first_difference(left: object, right: object) -> tuple[str, object, object]:
    """The path of the first field that differs, and its two values."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            if left.get(key) != right.get(key):
                path, a, b = first_difference(left.get(key), right.get(key))
                return f".{key}{path}", a, b
    return "", left, right

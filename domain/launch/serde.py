"""Which JSON does the Rust runtime take, where a launcher and its child may be of either? (C6, Y1)

Objects are tuples of their pairs, so that a name given twice is seen; arrays are lists. Numbers are floats: nothing
read here is one, and a float may have any number of digits.
"""

import json
from math import isinf
from typing import NoReturn

from murmur.domain.json_text import NotJson

WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)
"""What Rust trims. Python's own trimming takes four separators more."""

_DEEPEST = 127
"""Objects and arrays within each other that serde_json holds as a `Value`."""


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=float, parse_float=float, parse_constant=_refuse_constant
)  # fmt: skip


def read_pairs(text: str) -> object:
    """Decode a document, by its grammar alone; raise `NotJson`, whose text says why and quotes nothing of it."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        # `from None`: the codec's error holds the whole text, tokens included.
        raise NotJson(f"{error.msg}: column {error.pos + 1}") from None
    except RecursionError:
        raise NotJson("it is nested too deeply") from None


def read_value(text: str) -> object:
    """Decode a document that serde_json holds as a `Value`, also in the parts that nobody looks at; raise `NotJson`.

    To be refused for a number beyond a double, a lone surrogate, or over 127 levels of nesting.
    """
    document = read_pairs(text)
    pending = [(document, 1)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, str):
            if not is_text(value):
                raise NotJson("a string holds a lone surrogate")
        elif isinstance(value, float):
            if isinf(value):
                raise NotJson("a number is out of range")
        elif isinstance(value, (tuple, list)):
            if depth > _DEEPEST:
                raise NotJson("it is nested too deeply")
            for item in value:
                if isinstance(value, tuple):
                    name, inner = item
                    pending += ((name, depth), (inner, depth + 1))
                else:
                    pending.append((item, depth + 1))
    return document


def member(document: object, name: str) -> object:
    """Return what an object says under a name, the last time it does; `None` for what is no object or says nothing."""
    return dict(document).get(name) if isinstance(document, tuple) else None


def is_text(text: str) -> bool:
    """Say whether a string is free of lone surrogates, as every string of Rust's is."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

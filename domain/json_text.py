"""Is this JSON by RFC 8259, and how is it written to the wire?

What is no record, from the wire or a file, is read here and nowhere else.
"""

import json
from typing import NoReturn


class NotJson(ValueError):
    """Bytes that are no JSON document, or one beyond what this reader can hold. The message quotes none of them."""


def _refuse_constant(_: str) -> NoReturn:
    raise NotJson


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def read_json(content: bytes) -> object:
    """Return the decoded document; raise `NotJson`, also for a byte order mark and for NaN and the infinities."""
    try:
        return _DECODER.decode(content.decode())
    except (ValueError, RecursionError):
        # `from None`: the codecs' errors quote what they read.
        raise NotJson from None


def json_line(document: object) -> bytes:
    """Write a document on one line whatever breaks lines for its reader, U+2028 for one: in ASCII, without blanks."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def json_bytes(document: object) -> bytes:
    """Write a document in UTF-8; raise `ValueError` for NaN and the infinities.

    A lone surrogate has no UTF-8: a document that holds one is written in ASCII, where it is an escape.
    """
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(document, allow_nan=False).encode()

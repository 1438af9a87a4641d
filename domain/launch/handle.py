"""Whose delegation is a child, and where does it report its end? (C6)"""

import json
import re

from murmur.domain.json_text import NotJson
from murmur.domain.launch.request import Spawner
from murmur.domain.launch.serde import WHITE_SPACE, is_text, read_pairs
from murmur.domain.value import Value

SPAWNER_ENV = "MURMUR_SPAWNER"

_IDS = ("session_id", "context_id", "delegation_id")
_ID = re.compile("[!-~]+", re.ASCII)


class HandleRefused(ValueError):
    """A `MURMUR_SPAWNER` that is no handle. The message says why and repeats nothing of it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{SPAWNER_ENV} is no spawner handle: {why}")


class SpawnerHandle(Value):
    """What a delegated child knows of its delegation. No secret."""

    session_id: str
    """The parent's."""
    context_id: str
    delegation_id: str
    url: str | None = None
    """Where the completion is posted; `None` when the parent wants none."""


def handle_for(spawner: Spawner, delegation_id: str) -> SpawnerHandle:
    """Make the handle of one launch. The id is minted for this launch alone."""
    return SpawnerHandle(spawner.session_id, spawner.context_id, delegation_id, spawner.url)


def render_handle(handle: SpawnerHandle) -> str:
    """Write the handle as the value of `MURMUR_SPAWNER`: compact JSON, `url` only when there is one."""
    document = {name: getattr(handle, name) for name in _IDS}
    if handle.url is not None:
        document["url"] = handle.url
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def parse_handle(text: str | None) -> SpawnerHandle | None:
    """Read the value of `MURMUR_SPAWNER`; absent or blank is no handle. Raise `HandleRefused` for anything malformed.

    Names that a handle does not have, such as `trust`, are ignored, whatever they hold. An id is visible ASCII,
    since it is sent in a header (W6). A `url` of null is none.
    """
    if text is None or not text.strip(WHITE_SPACE):
        return None
    fields = _fields(text)
    session_id, context_id, delegation_id = (_id(fields, name) for name in _IDS)
    url = fields.get("url")
    if url is not None and not (isinstance(url, str) and is_text(url)):
        raise HandleRefused("its `url` is no text")
    return SpawnerHandle(session_id, context_id, delegation_id, url)


def _fields(text: str) -> dict[str, object]:
    if not is_text(text):
        raise HandleRefused("it is not UTF-8")
    try:
        document = read_pairs(text)
    except NotJson as error:
        raise HandleRefused(f"it is not JSON: {error}") from None
    if not isinstance(document, tuple):
        raise HandleRefused("it is no JSON object")
    fields: dict[str, object] = {}
    for name, value in document:
        if name in fields and name in (*_IDS, "url"):
            raise HandleRefused(f"it has `{name}` twice")
        if not is_text(name):
            # serde decodes every name of a struct, also one that it ignores.
            raise HandleRefused("a name in it holds a lone surrogate")
        fields[name] = value
    return fields


def _id(fields: dict[str, object], name: str) -> str:
    if name not in fields:
        raise HandleRefused(f"it has no `{name}`")
    value = fields[name]
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise HandleRefused(f"its `{name}` is no id")
    return value

"""What does a delegation's `completion.json` say, and how is its spawner told? (W5, W6).

Like a record it is read as the Rust runtime's serde reader reads it, but for two forms that nothing writes: a
positional array, and a status as an object. Either is no completion here.
"""

import json
from typing import Literal, NoReturn, TypeVar

from murmur.domain.door import Answered, AskLimits, DoorAsk, DoorReading, NoSuchAddress, door_address
from murmur.domain.json_text import NotJson, json_bytes, read_json
from murmur.domain.launch.handle import SpawnerHandle
from murmur.domain.task_asks import TaskSeen, read_task
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

COMPLETION_FILE = "completion.json"
"""Its name in the child's records directory (W5)."""
COMPLETION_LIMIT = 1024 * 1024
"""Bytes above which a file is no completion."""
DETAIL_LIMIT = 2000
"""Bytes of UTF-8 of a detail that are kept (W5)."""
POST_LIMITS = AskLimits(connect=2.0, read=30.0, total=30.0)
"""What a spawner's door is granted to take a completion in (W6)."""

_CUT = " […]"
_WORDS_LIMIT = 300
"""Characters of a name, or of a reason that a door gave, that are shown."""
_PATH_LIMIT = 4096
"""The same of a path: no system takes a longer one."""
_DURATION_MAX = 2**64 - 1

DelegationStatus = Literal["ok", "error", "crashed", "terminated"]
Reporter = Literal["child", "launcher"]
_STATUSES: tuple[DelegationStatus, ...] = ("ok", "error", "crashed", "terminated")
_REPORTERS: tuple[Reporter, ...] = ("child", "launcher")
_Word = TypeVar("_Word", bound=str)


class DelegationOutcome(Value):
    """How one delegation ended, and whether its spawner has been told (W5)."""

    delegation_id: str
    capsule_name: str
    capsule_version: str
    session_id: str
    """The child's own session."""
    status: DelegationStatus
    workdir: str
    """The child's work folder. Text, so that it is written back unchanged."""
    duration_ms: int
    """From the spawn to the end (W3)."""
    reported_by: Reporter
    result_path: str | None = None
    detail: str | None = None
    """What a person should know of it; written and posted cut to `DETAIL_LIMIT`."""
    delivered: bool = False
    delivery_error: str | None = None
    """Why the last post was not delivered."""


_KEYS = (
    "delegation_id", "capsule_name", "capsule_version", "session_id", "status", "result_path", "workdir", "duration_ms",
    "detail", "reported_by", "delivered", "delivery_error",
)  # fmt: skip
_KNOWN = frozenset(_KEYS)


def render_completion(outcome: DelegationOutcome) -> bytes:
    """Write a completion in the order and form of W5, its detail cut.

    It can always be written: half a surrogate pair, as in a path that is not UTF-8, becomes U+FFFD, as in Rust.
    """
    document = {name: _whole(value) for name in _KEYS if (value := getattr(outcome, name)) is not None}
    if outcome.detail is not None:
        document["detail"] = cut_detail(outcome.detail)
    return f"{json.dumps(document, ensure_ascii=False, indent=2)}\n".encode()


def cut_detail(text: str) -> str:
    """Return a detail of at most `DETAIL_LIMIT` bytes, or as much of its beginning and a mark (W5).

    What was cut once is not cut again, so that reading and rewriting a completion changes nothing.
    """
    text = _whole_text(text)
    content = text.encode()
    if len(content.removesuffix(_CUT.encode())) <= DETAIL_LIMIT:
        return text
    return content[:DETAIL_LIMIT].decode(errors="ignore") + _CUT


def _whole(value: object) -> object:
    return _whole_text(value) if isinstance(value, str) else value


def _whole_text(text: str) -> str:
    """Return the text with every half of a surrogate pair replaced: it has no UTF-8."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _NoCompletion(ValueError):
    """The bytes are no completion. Nobody is told why: it reads as none (W5)."""


def parse_completion(content: bytes) -> DelegationOutcome | None:
    """Read a completion file's bytes; `None` for anything that is no completion (W5)."""
    if len(content) > COMPLETION_LIMIT:
        return None
    try:
        fields = _known_fields(_DECODER.decode(content.decode()))
        return DelegationOutcome(
            delegation_id=_text(fields["delegation_id"]),
            capsule_name=_text(fields["capsule_name"]),
            capsule_version=_text(fields["capsule_version"]),
            session_id=_text(fields["session_id"]),
            status=_one_of(_STATUSES, fields["status"]),
            workdir=_text(fields["workdir"]),
            duration_ms=_duration(fields["duration_ms"]),
            reported_by=_one_of(_REPORTERS, fields["reported_by"]),
            result_path=_optional(fields.get("result_path")),
            detail=_optional(fields.get("detail")),
            delivered=_flag(fields["delivered"]),
            delivery_error=_optional(fields.get("delivery_error")),
        )
    except (ValueError, KeyError, RecursionError):
        return None


def _integer(digits: str) -> int | float:
    # serde reads `-0`, and what is beyond 64 bits, as a float, which is no count of milliseconds. Python would read
    # the first as 0 and refuse one of over 4,300 digits, also where serde skips it.
    return float(digits) if digits == "-0" or len(digits) > len(str(_DURATION_MAX)) else int(digits)


def _refuse_constant(_: str) -> NoReturn:
    raise _NoCompletion


# An object is decoded as a tuple of its pairs, so that a repeated key is seen; an array stays a list.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_int=_integer, parse_constant=_refuse_constant)


def _known_fields(document: object) -> dict[str, object]:
    if not isinstance(document, tuple):
        raise _NoCompletion
    fields: dict[str, object] = {}
    for name, value in document:
        # serde decodes every key of a struct, known or not, and half a surrogate pair does not decode.
        if _text(name) in fields:
            raise _NoCompletion
        if name in _KNOWN:
            fields[name] = value
    return fields


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _NoCompletion
    value.encode()  # Raises for half a surrogate pair.
    return value


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _NoCompletion
    return value


def _duration(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _DURATION_MAX:
        raise _NoCompletion
    return value


def _one_of(words: tuple[_Word, ...], value: object) -> _Word:
    for word in words:
        if value == word:
            return word
    raise _NoCompletion


def summary_text(outcome: DelegationOutcome) -> str:
    """Say in a line what became of a delegation, in further ones where its result is and the detail.

    The child wrote most of it: its control characters are shown, its length is bounded, and none of its line breaks
    begins a line like the first two, since the detail's further lines are indented.
    """
    capsule = f"{shown_words(outcome.capsule_name)}@{shown_words(outcome.capsule_version)}"
    lines = [f"delegation {shown_words(outcome.delegation_id)} ({capsule}) ended: {outcome.status}"]
    if outcome.result_path is not None:
        lines.append(f"result: {shown_words(outcome.result_path, _PATH_LIMIT)}")
    if outcome.detail:
        first, *further = map(visible, cut_detail(outcome.detail).split("\n"))
        lines += [f"detail: {first}", *(f"  {line}" for line in further)]
    return "\n".join(lines)


def completion_ask(handle: SpawnerHandle, outcome: DelegationOutcome, message_id: str) -> DoorAsk:
    """Make the request that tells a spawner how its delegation ended (W6); raise `NoSuchAddress`.

    It is about the handle's delegation, whatever the child recorded. It carries no token.
    """
    if handle.url is None:
        raise NoSuchAddress("the spawner named no door to report to")
    address = door_address(handle.url)
    message = {
        "messageId": message_id,
        "contextId": handle.context_id,
        "role": "user",
        "parts": [{"text": summary_text(outcome.replaced(delegation_id=handle.delegation_id))}],
    }
    headers = (
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("x-murmur-task-origin", "completion"),
        ("x-murmur-delegation-id", handle.delegation_id),
        ("x-murmur-completion-session", handle.session_id),
    )
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    return DoorAsk(address, "POST", "/", headers, json_bytes(call))


def delivery_of(reading: DoorReading) -> str | None:
    """Say why a completion was not delivered, on one line; `None` when it was (W6)."""
    if not isinstance(reading, Answered):
        return shown_words(reading.reason)
    if not 200 <= reading.status < 300:
        return f"the door answered with HTTP status {reading.status}"
    try:
        document = read_json(reading.body)
    except NotJson:
        return "the door answered with a body that is not JSON"
    match document:
        case {"error": {"message": str(message)}}:
            return f"the door refused: {shown_words(message)}"
        case {"error": _}:
            return "the door refused"
        case {"result": {"status": {"state": "rejected"}}}:
            task = read_task(reading, None)
            why = task.message if isinstance(task, TaskSeen) else None
            return "the door rejected it" if why is None else f"the door rejected it: {shown_words(why)}"
        case dict():
            return None
        case _:
            return "the door answered with something that is no JSON-RPC answer"


def shown_words(text: str, limit: int = _WORDS_LIMIT) -> str:
    """Return what somebody else says, a name or a reason, on one line and no longer than that many characters."""
    shown = visible(text[:limit])
    return shown if len(shown) <= limit and len(text) <= limit else shown[:limit] + _CUT

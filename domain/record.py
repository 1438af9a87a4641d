"""What a running record says, and its exact form as bytes (R1-R6).

A record is a hint, never a truth: parsing one proves nothing but that somebody wrote it. The reader takes
exactly what the Rust runtime's serde reader takes, which is stricter than Python's `json` in several ways and
laxer in a few; each difference is handled where it arises below.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from murmur.domain.errors import UnwritableRecord
from murmur.domain.ids import FormationId, InvalidFormationId
from murmur.domain.process import ProcessIdentity
from murmur.domain.secret import DoorToken

RECORD_LIMIT = 1024 * 1024
"""Bytes above which a record is not read (R5)."""

_U32_MAX = 2**32 - 1


class UnreadableRecord(Exception):
    """Bytes that are no record. `removable` says whether they prove it (S3).

    `removable` is false when the content is only beyond what this reader can hold, while another
    implementation might read it: nesting, digits, size, a positional array. Such a file is kept.
    The message never repeats content, since any part of it may be a token.
    """

    def __init__(self, reason: str, *, removable: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.removable = removable


@dataclass(frozen=True, slots=True)
class RunningRecord:
    """Where one session's door is and which process holds it. Field order is the order on disk (R1)."""

    session_id: str
    url: str
    """`host:port`, perhaps behind `http://`."""
    pid: int
    """0 ..= 2^32-1, as recorded; only 1 ..= 2^31-1 can name a process."""
    process_start: str
    """The start token, `""` when the writer could not read its own."""
    capsule_name: str
    capsule_version: str
    workdir: str
    """The session's records directory. Text rather than a path, so that it is written back unchanged."""
    outlives_launcher: bool
    started_at: str
    """RFC 3339 UTC, as recorded: not checked."""
    door_token: DoorToken | None = None
    credentials: Mapping[str, DoorToken] = field(default_factory=dict)
    formation_id: FormationId | None = None
    formation_lifeline: bool = False
    formation_launcher: ProcessIdentity | None = None
    spawned_by: str | None = None

    @property
    def identity(self) -> ProcessIdentity:
        """The process this record names."""
        return ProcessIdentity(self.pid, self.process_start)


_REQUIRED = (
    "session_id", "url", "pid", "process_start", "capsule_name", "capsule_version", "workdir", "outlives_launcher",
    "started_at",
)  # fmt: skip
_OPTIONAL = (
    "door_token", "credentials", "formation_id", "formation_lifeline", "formation_launcher", "spawned_by",
)  # fmt: skip
_KNOWN = frozenset(_REQUIRED + _OPTIONAL)
_LAUNCHER_KEYS = frozenset(("pid", "process_start"))


def _integer(digits: str) -> int | float:
    # serde reads `-0` as a float, which is no u32; Python would read it as the integer 0.
    return -0.0 if digits == "-0" else int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise UnreadableRecord(f"it is not JSON: {name} is no JSON value")


# An object is decoded as a tuple of its pairs, so that a repeated key is seen; an array stays a list.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_int=_integer, parse_constant=_refuse_constant)


def parse_record(content: bytes) -> RunningRecord:
    """Read one record file's bytes; raise `UnreadableRecord` for anything that is not a record (R3, R5)."""
    if len(content) > RECORD_LIMIT:
        raise UnreadableRecord(f"it is larger than {RECORD_LIMIT} bytes", removable=False)
    document = _document(content)
    if isinstance(document, list):
        raise UnreadableRecord("it is a positional array, which this reader does not take", removable=False)
    if not isinstance(document, tuple):
        raise UnreadableRecord("it is not a JSON object")
    fields = _known_fields(document, _KNOWN, "")
    for name in _REQUIRED:
        if name not in fields:
            raise UnreadableRecord(f"it has no `{name}`")
    return RunningRecord(
        session_id=_text(fields["session_id"], "session_id"),
        url=_text(fields["url"], "url"),
        pid=_u32(fields["pid"], "pid"),
        process_start=_text(fields["process_start"], "process_start"),
        capsule_name=_text(fields["capsule_name"], "capsule_name"),
        capsule_version=_text(fields["capsule_version"], "capsule_version"),
        workdir=_text(fields["workdir"], "workdir"),
        outlives_launcher=_flag(fields["outlives_launcher"], "outlives_launcher"),
        started_at=_text(fields["started_at"], "started_at"),
        door_token=None if (token := fields.get("door_token")) is None else DoorToken(_text(token, "door_token")),
        credentials=_credentials(fields["credentials"]) if "credentials" in fields else {},
        formation_id=_formation(fields.get("formation_id")),
        formation_lifeline=_flag(fields.get("formation_lifeline", False), "formation_lifeline"),
        spawned_by=None if (by := fields.get("spawned_by")) is None else _text(by, "spawned_by"),
        formation_launcher=_launcher(fields.get("formation_launcher")),
    )


def render_record(record: RunningRecord) -> bytes:
    """Write a record as the Rust runtime writes it, byte for byte (R2).

    With `DoorToken.expose`, one of the three places where a token is written (I3).
    Raises `UnwritableRecord` when a text, such as a path that is not UTF-8, cannot be encoded.
    """
    document: dict[str, object] = {name: getattr(record, name) for name in _REQUIRED}
    if record.door_token is not None:
        document["door_token"] = record.door_token.expose()
    if record.credentials:
        # Code point order is UTF-8 byte order, the order of serde's BTreeMap.
        document["credentials"] = {name: record.credentials[name].expose() for name in sorted(record.credentials)}
    if record.formation_id is not None:
        document["formation_id"] = record.formation_id
    if record.formation_lifeline:
        document["formation_lifeline"] = True
    if record.formation_launcher is not None:
        launcher = record.formation_launcher
        document["formation_launcher"] = {"pid": launcher.pid, "process_start": launcher.process_start}
    if record.spawned_by is not None:
        document["spawned_by"] = record.spawned_by
    try:
        return json.dumps(document, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:
        # `from None`: the codec's error quotes the whole text, tokens included.
        raise UnwritableRecord(
            "the session's record would hold a name or path that is not UTF-8, so it was not written"
        ) from None


def _document(content: bytes) -> object:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableRecord(f"it is not UTF-8 at byte {error.start}") from None
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise UnreadableRecord(f"it is not JSON: {error.msg} at line {error.lineno}") from None
    except RecursionError:
        raise UnreadableRecord("it is nested deeper than this reader can hold", removable=False) from None
    except ValueError:
        # Python refuses to convert an integer of over 4,300 digits; serde skips one of any length.
        raise UnreadableRecord("it holds an integer longer than this reader can hold", removable=False) from None


def _known_fields(pairs: tuple[object, ...], known: frozenset[str], within: str) -> dict[str, object]:
    fields: dict[str, object] = {}
    for pair in pairs:
        assert isinstance(pair, tuple)
        name, value = pair
        assert isinstance(name, str)
        if name not in known:
            # serde decodes every key of a struct, known or not, and a lone surrogate does not decode.
            _refuse_surrogates(name, f"a key{within}")
            continue
        if name in fields:
            raise UnreadableRecord(f"it has `{name}` twice{within}")
        fields[name] = value
    return fields


def _refuse_surrogates(text: str, what: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnreadableRecord(f"{what} holds a lone surrogate") from None


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise UnreadableRecord(f"`{name}` is not a string")
    _refuse_surrogates(value, f"`{name}`")
    return value


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise UnreadableRecord(f"`{name}` is not true or false")
    return value


def _u32(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= _U32_MAX:
        raise UnreadableRecord(f"`{name}` is not an unsigned 32-bit integer")
    return value


def _credentials(value: object) -> Mapping[str, DoorToken]:
    if not isinstance(value, tuple):
        raise UnreadableRecord("`credentials` is not an object")
    credentials: dict[str, DoorToken] = {}
    for name, token in value:
        _refuse_surrogates(name, "a credential name")
        credentials[name] = DoorToken(_text(token, "credentials"))
    return credentials


def _formation(value: object) -> FormationId | None:
    if value is None:
        return None
    try:
        return FormationId(_text(value, "formation_id"))
    except InvalidFormationId as error:
        raise UnreadableRecord(f"`formation_id` is none: {error}") from None


def _launcher(value: object) -> ProcessIdentity | None:
    if value is None:
        return None
    if isinstance(value, list):
        raise UnreadableRecord(
            "`formation_launcher` is a positional array, which this reader does not take", removable=False
        )
    if not isinstance(value, tuple):
        raise UnreadableRecord("`formation_launcher` is not an object")
    fields = _known_fields(value, _LAUNCHER_KEYS, " of `formation_launcher`")
    for name in ("pid", "process_start"):
        if name not in fields:
            raise UnreadableRecord(f"`formation_launcher` has no `{name}`")
    return ProcessIdentity(
        _u32(fields["pid"], "formation_launcher.pid"),
        _text(fields["process_start"], "formation_launcher.process_start"),
    )

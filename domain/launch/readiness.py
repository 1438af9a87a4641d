"""What does a child's first line say of it, and may it be believed? (Y1-Y3)"""

from typing import TYPE_CHECKING

from murmur.domain.door import recorded_address
from murmur.domain.ids import FormationId, InvalidFormationId
from murmur.domain.json_text import NotJson
from murmur.domain.launch.serde import WHITE_SPACE, member, read_value
from murmur.domain.secret import DoorToken
from murmur.domain.value import Value

if TYPE_CHECKING:
    from pathlib import PurePath


class ReadinessRefused(ValueError):
    """A first line that refuses the delegation. `str()` is the whole refusal (X6); it may quote `records_dir`."""


class Readiness(Value):
    """What a child reported of itself, checked. Nothing of it has been opened yet (Y2)."""

    session_id: str
    records_dir: "PurePath"
    """Strictly beneath the records root and named by the session id; without `.`, `..` and doubled slashes."""
    capsule_url: str
    """`http://host:port`, or empty: a script child has no door."""
    door_token: DoorToken | None
    formation_id: FormationId | None


def parse_readiness(line: str | bytes, records_root: "PurePath") -> Readiness:
    """Read a child's first line; raise `ReadinessRefused`.

    `records_root` is this host's `~/.murmur/records`, absolute. Blanks after the document are trimmed.
    """
    try:
        report = read_value(_text(line).rstrip(WHITE_SPACE))
    except NotJson as error:
        raise ReadinessRefused(f"the child capsule's first --json line did not parse: {error}") from None
    session_id = member(report, "session_id")
    if not isinstance(session_id, str):
        raise ReadinessRefused("the child capsule's --json line carried no session_id")
    return Readiness(
        session_id=session_id,
        records_dir=_records_dir(member(report, "records_dir"), session_id, records_root),
        capsule_url=_capsule_url(member(report, "url")),
        door_token=_door_token(member(member(report, "tokens"), "operator")),
        formation_id=_formation_id(member(report, "formation_id")),
    )


def _text(line: str | bytes) -> str:
    if isinstance(line, str):
        return line
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"it is not UTF-8 at byte {error.start}") from None


def _records_dir(reported: object, session_id: str, records_root: "PurePath") -> "PurePath":
    nowhere = "so its outcome has nowhere to be read from"
    if not isinstance(reported, str):
        raise ReadinessRefused(f"the child capsule's --json line carried no records_dir, {nowhere}")
    root, parts = _parts(str(records_root)), _parts(reported)
    below = parts[len(root) :]
    # The root itself is refused even for a session that has its name. NUL is in no path: opening one is a
    # `ValueError`, which nobody on the way expects.
    if (
        not reported.startswith("/")
        or parts[: len(root)] != root
        or below[-1:] != [session_id]
        or ".." in parts
        or "\0" in reported
    ):
        raise ReadinessRefused(
            f"the child capsule's --json line named {reported} as its records directory, "
            f"which is not {records_root}/<workdir root>/{session_id}, {nowhere}"
        )
    return records_root.joinpath(*below)


def _parts(path: str) -> list[str]:
    # As Rust compares paths. `PurePath` would take two leading slashes for another root than one.
    return [part for part in path.split("/") if part not in ("", ".")]


def _capsule_url(url: object) -> str:
    address = recorded_address(url) if isinstance(url, str) else ""
    # Promoting nothing to `http://` would make up an address at which nobody answers.
    return f"http://{address}" if address else ""


def _door_token(token: object) -> DoorToken | None:
    return DoorToken(token) if isinstance(token, str) and token else None


def _formation_id(reported: object) -> FormationId | None:
    try:
        return FormationId(reported) if isinstance(reported, str) else None
    except InvalidFormationId:
        return None

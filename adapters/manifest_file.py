"""What does a `murmur.yaml` say, and on which line is what is wrong with it?

YAML is taken apart event by event, so that the first alias, tag or level too deep ends the reading: nothing is expanded
or built before that, and a hostile file costs no more than its length.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import yaml
from yaml.constructor import SafeConstructor
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)
from yaml.reader import Reader
from yaml.resolver import Resolver

from murmur.adapters.small_files import UnreadFile, line_at, read_small_file
from murmur.domain.capsule_store import MANIFEST_LIMIT
from murmur.domain.errors import ManifestRefused
from murmur.domain.manifest import Fault, InvalidManifest, Manifest, Place, key_text, manifest_from, unknown_keys
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_DEEPEST = 32
_MOST_VALUES = 5_000
_LONGEST_NUMBER = 40
_LONGEST_KEY = 100
_TAG = "tag:yaml.org,2002:"

_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _NotText(Value):
    """A number, date or the like that no key of a manifest takes. It is kept as it was written."""

    written: str


class _Spot(NamedTuple):
    """Where a place of the document stands; how its value is written, if YAML takes it for something else than text."""

    line: int
    written: str | None = None


def read_manifest(path: Path) -> tuple[Manifest, list[str]]:
    """Read a manifest; the warnings name each key that is not known.

    Raises `ManifestRefused`, whose message is one line with the file, the line and the key of the first fault.
    """
    file = visible(str(path))
    try:
        content = read_small_file(path, MANIFEST_LIMIT)
    except FileNotFoundError:
        raise ManifestRefused(f"{file}: there is no such file", hint="give the path of a murmur.yaml") from None
    except UnreadFile as error:
        raise ManifestRefused(f"{file}: {error}") from None
    return parse_manifest(content, file)


def parse_manifest(content: bytes, file: str) -> tuple[Manifest, list[str]]:
    """Do the same for what was read from a file of that name."""
    reading = _Reading(file)
    document = reading.document(_decoded(content, file))
    try:
        manifest = manifest_from(document)
    except InvalidManifest as error:
        fault = min(error.faults, key=lambda each: reading.line_of(each.place))
    else:
        unknown = unknown_keys(document, manifest)
        return manifest, [reading.message(place, "this key is not known and has no effect") for place in unknown]
    raise ManifestRefused(reading.message(fault.place, reading.complaint(fault)), hint=_HINTS.get(fault.place))


_HINTS: dict[Place, str] = {
    ("process",): "for example: process: {command: [python3, agent.py]}",
    ("process", "command"): "for example: command: [python3, agent.py]",
    ("network", "authentication"): "a door that needs tokens: authentication: {scheme: bearer}",
}
_QUOTABLE: frozenset[Place] = frozenset({("name",), ("version",)})
"""The keys whose value may be shown, since it is public anyway."""


def _decoded(content: bytes, file: str) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = line_at(error.object, error.start)
        raise ManifestRefused(f"{file}:{line}: it is not UTF-8", hint="save it as UTF-8") from None
    if (found := Reader.NON_PRINTABLE.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise ManifestRefused(f"{file}:{line}: YAML does not allow the character {visible(found.group())}")
    return text


class _Reading:
    """One manifest while it is read: its events in order, and the lines of the places met so far."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._spots: dict[Place, _Spot] = {(): _Spot(1)}
        self._resolver = Resolver()
        self._constructor = SafeConstructor()
        self._values = 0

    def document(self, text: str) -> dict[str, object]:
        """Return the one document, a mapping, as plain values; raise `ManifestRefused`."""
        events = yaml.parse(text, Loader=_LOADER)
        try:
            return self._only_document(events)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 1 if mark is None else mark.line + 1
            problem = visible(error.problem or error.context or "it could not be read")
            raise ManifestRefused(f"{self._file}:{line}: this is not YAML: {problem}") from None
        except (yaml.YAMLError, ValueError, OverflowError):
            # Such as an escape for a character that there is not; the parser does not say where.
            raise ManifestRefused(f"{self._file}: this is not YAML") from None

    def _only_document(self, events: Iterator[Event]) -> dict[str, object]:
        first = next(event for event in events if not isinstance(event, StreamStartEvent | DocumentStartEvent))
        if isinstance(first, StreamEndEvent) or (isinstance(first, ScalarEvent) and _is_nothing(first)):
            self._refuse((), "it is empty")
        self._spots[()] = _Spot(_line(first))
        document = self._value(first, (), events)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                self._spots[()] = _Spot(_line(event))
                self._refuse((), "a second document starts here; a manifest is one")
        if not isinstance(document, dict):
            self._refuse((), "a manifest is a mapping of keys: name, version, process and others")
        return document

    def _value(self, event: Event, place: Place, events: Iterator[Event]) -> object:
        self._check_plain(event, place)
        self._values += 1
        if self._values > _MOST_VALUES:
            self._refuse(place[:-1], f"the manifest holds more than {_MOST_VALUES:,} values", _line(event))
        if len(place) > _DEEPEST:
            self._refuse(place[:1], f"it is nested more than {_DEEPEST} levels deep")
        match event:
            case ScalarEvent():
                return self._scalar(event, place)
            case SequenceStartEvent():
                return list(self._items(place, events))
            case _:
                return self._mapping(place, events)

    def _items(self, place: Place, events: Iterator[Event]) -> Iterator[object]:
        for position, event in enumerate(_until(SequenceEndEvent, events)):
            inner = (*place, position)
            self._spots[inner] = _Spot(_line(event))
            yield self._value(event, inner, events)

    def _mapping(self, place: Place, events: Iterator[Event]) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for event in _until(MappingEndEvent, events):
            line = _line(event)
            key = self._key(event, place, line)
            inner = (*place, key)
            before = self._spots.get(inner)
            self._spots[inner] = _Spot(line)
            if before is not None:
                self._refuse(inner, f"this key is here twice, first on line {before.line}")
            mapping[key] = self._value(next(events), inner, events)
        return mapping

    def _key(self, event: Event, place: Place, line: int) -> str:
        # A fault of the key itself is told on its own line, beneath the place of its mapping.
        if not isinstance(event, ScalarEvent):
            self._check_plain(event, place, line)
            self._refuse(place, "a key is text, not a list or a mapping", line)
        self._check_plain(event, (*place, event.value), line)
        tag = self._resolved(event)
        if tag == "merge":
            self._refuse((*place, event.value), "merge keys are not used in a manifest", line, _WRITE_OUT)
        if tag != "str":
            quoted = f': "{event.value}"' if event.value else ""
            self._refuse((*place, event.value), f"give the key as text{quoted}", line)
        return event.value

    def _check_plain(self, event: Event, place: Place, line: int | None = None) -> None:
        """Refuse what a manifest has no use for, before anything is made of it."""
        assert isinstance(event, NodeEvent)
        if isinstance(event, AliasEvent) or event.anchor is not None:
            self._refuse(place, "aliases are not used in a manifest", line or _line(event), _WRITE_OUT)
        if isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent) and event.tag is not None:
            self._refuse(
                place, "tags are not used in a manifest", line or _line(event), "leave the tag out; text goes in quotes"
            )

    def _scalar(self, event: ScalarEvent, place: Place) -> object:
        tag = self._resolved(event)
        if tag in {"str", "merge", "value"}:  # The last two are `<<` and `=`, which mean nothing as values.
            return event.value
        node = yaml.ScalarNode(_TAG + tag, event.value)
        if tag == "null":
            return None
        self._spots[place] = self._spots[place]._replace(written=event.value)
        if tag == "bool":
            return bool(self._constructor.construct_yaml_bool(node))
        if tag == "int" and len(event.value) <= _LONGEST_NUMBER:
            try:
                return int(self._constructor.construct_yaml_int(node))
            except ValueError:  # Such as `0b_`.
                return _NotText(event.value)
        return _NotText(event.value)

    def _resolved(self, event: ScalarEvent) -> str:
        tag = self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        return str(tag).removeprefix(_TAG)

    def line_of(self, place: Place) -> int:
        """Return the line of a place's key or list item; of what it would stand in, where it is missing."""
        while place not in self._spots:
            place = place[:-1]
        return self._spots[place].line

    def complaint(self, fault: Fault) -> str:
        """Say what is wrong, and how text is given that YAML takes for something else."""
        spot = self._spots.get(fault.place)
        if not fault.wants_text or spot is None or spot.written is None:
            return fault.complaint
        if fault.place in _QUOTABLE and len(spot.written) <= _LONGEST_NUMBER:
            return f'{fault.complaint}: {key_text(fault.place)}: "{spot.written}"'
        return f"{fault.complaint}, in quotes"

    def message(self, place: Place, complaint: str, line: int | None = None) -> str:
        """Write one line with the file, the line and the key."""
        key = visible(key_text(place))
        key = key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…"
        where = f"{self._file}:{line or self.line_of(place)}"
        return f"{where}: {key}: {complaint}" if key else f"{where}: {complaint}"

    def _refuse(self, place: Place, complaint: str, line: int | None = None, hint: str | None = None) -> NoReturn:
        raise ManifestRefused(self.message(place, complaint, line), hint=hint)


_WRITE_OUT = "write the value out wherever it is used"


def _until(end: type[Event], events: Iterator[Event]) -> Iterator[Event]:
    """Give the events that start a collection's children, each taken whole by the caller before the next."""
    while not isinstance(event := next(events), end):
        yield event


def _is_nothing(event: ScalarEvent) -> bool:
    return not event.value and event.implicit[0] and event.tag is None and event.anchor is None


def _line(event: Event) -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1

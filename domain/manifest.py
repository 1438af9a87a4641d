"""What does a manifest say, and what is wrong with one? Models over a document that was already taken apart.

Whatever is wrong is named by its place in the document, a path of keys and positions. Values are never repeated: a
command line may hold a secret.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from murmur.domain.capsule_store import CAPSULE_NAME
from murmur.domain.door_tokens import OPERATOR
from murmur.domain.value import Value

Place = tuple[str | int, ...]
"""Where something stands in a document: the keys and list positions that lead there."""

Scope = Literal[
    "message/send",
    "message/stream",
    "stream/watch",
    "tasks/get",
    "tasks/cancel",
    "session/stop",
    "agent/getAuthenticatedExtendedCard",
]
SCOPES: tuple[str, ...] = get_args(Scope)
"""What a credential may be allowed: the names of the methods that a door can have."""

LARGEST_PORT = 65_535
LONGEST_QUEUE = 10_000

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The types of the complaints made here, about a value and about a key: their messages are shown as they are.
_ABOUT_VALUE = "manifest_value"
_ABOUT_KEY = "manifest_key"


def _complaint(message: str) -> PydanticCustomError:
    return PydanticCustomError(_ABOUT_VALUE, "{message}", {"message": message})


def _text_like(pattern: re.Pattern[str], message: str) -> AfterValidator:
    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise _complaint(message)
        return text

    return AfterValidator(check)


def _within(lowest: int, highest: int) -> AfterValidator:
    def check(number: int) -> int:
        if not lowest <= number <= highest:
            raise _complaint(f"it is a whole number from {lowest} to {highest}")
        return number

    return AfterValidator(check)


def _without_null(text: str) -> str:
    if "\0" in text:
        raise _complaint("a null character cannot be handed to a command")
    return text


def _credential_name(name: str) -> str:
    if name == OPERATOR:
        raise PydanticCustomError(_ABOUT_KEY, "every door with tokens has this credential; give yours another name")
    if not name:
        raise PydanticCustomError(_ABOUT_KEY, "a credential has a name")
    return name


def _not_null(value: object) -> object:
    # Without this, `authentication:` with nothing beneath would read as a door that needs no token.
    if value is None:
        raise _complaint(_MAPPING_WANTED)
    return value


def _empty_if_null(value: object) -> object:
    return {} if value is None else value


_MAPPING_WANTED = "give it as a mapping of keys"

_Text = Annotated[str, Field(strict=True)]
_SomeText = Annotated[_Text, Field(min_length=1)]
_Number = Annotated[int, Field(strict=True)]
CapsuleName = Annotated[
    _Text, _text_like(CAPSULE_NAME, "it is made of a-z, 0-9 and -, with one / where there is a scope: scope/name")
]
_VariableName = Annotated[
    _Text, _text_like(_VARIABLE, "the name of a variable is made of letters, digits and _, and starts with no digit")
]


class _Section(BaseModel):
    """A mapping of the manifest. What it does not know is ignored here, and found by `unknown_keys`."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class Process(_Section):
    """What is run. An agent has a door; a script runs once and has none."""

    command: Annotated[tuple[Annotated[_SomeText, AfterValidator(_without_null)], ...], Field(min_length=1)]
    kind: Literal["agent", "script"] = "agent"


class AllowedVariables(_Section):
    """The environment variables that the command gets beside the usual ones."""

    allow: tuple[_VariableName, ...] = ()


class AllowedCapsules(_Section):
    """The capsules that the command may start."""

    allow: tuple[CapsuleName, ...] = ()


class Capabilities(_Section):
    """What the command may do."""

    env: AllowedVariables = AllowedVariables()
    spawn: AllowedCapsules = AllowedCapsules()


class Credential(_Section):
    """One caller of the door, and the methods it may call."""

    scopes: tuple[Scope, ...]


class Authentication(_Section):
    """How callers of the door prove who they are."""

    scheme: Literal["bearer"]
    credentials: dict[Annotated[_Text, AfterValidator(_credential_name)], Credential] = {}


class Network(_Section):
    """Where the door listens (0: any free port) and whom it lets in (`None`: everybody who can reach it)."""

    internal_port: Annotated[_Number, _within(0, LARGEST_PORT)] = 0
    authentication: Annotated[Authentication | None, BeforeValidator(_not_null)] = None


class Control(_Section):
    """That the session can be paused and drained. It has no keys so far."""


class Lifecycle(_Section):
    """Which tasks the session takes, and what it does after one. `queue_depth` counts the waiting.

    `conversation` says whether a task's command learns what was said before in the same conversation.
    """

    task_acceptance: Literal["none", "single", "queue"] = "single"
    after_task: Literal["exit", "sleep"] = "exit"
    queue_depth: Annotated[_Number, _within(1, LONGEST_QUEUE)] = 1
    conversation: Literal["none", "threaded"] = "none"


class Manifest(_Section):
    """A `murmur.yaml`. `control` is `None` where the key is missing; a bare `control:` is an empty one."""

    name: CapsuleName
    version: _SomeText
    process: Process
    capabilities: Capabilities = Capabilities()
    network: Network = Network()
    control: Annotated[Control | None, BeforeValidator(_empty_if_null)] = None
    lifecycle: Lifecycle = Lifecycle()


class Fault(Value):
    """One thing wrong, at a place that may be missing from the document.

    `wants_text` says that a number, a date or the like stands where text should, so that quoting it is the cure.
    """

    place: Place
    complaint: str
    wants_text: bool = False


class InvalidManifest(ValueError):
    """The document is no manifest; `faults`, at least one, say why."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__(", ".join(f"{key_text(fault.place)}: {fault.complaint}" for fault in faults))
        self.faults = faults


def manifest_from(document: Mapping[str, object]) -> Manifest:
    """Check a document of mappings, lists and plain values; raise `InvalidManifest`."""
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
    raise InvalidManifest(tuple(_fault(each) for each in details))


def unknown_keys(document: Mapping[str, object], section: BaseModel) -> Iterator[Place]:
    """Find what was ignored when `document` was read as `section`, in the order of the document."""
    known = type(section).model_fields
    for key, value in document.items():
        if key not in known:
            yield (key,)
        elif isinstance(value, dict):
            for rest in _unknown_beneath(value, getattr(section, key)):
                yield (key, *rest)


def _unknown_beneath(document: dict[str, object], read: object) -> Iterator[Place]:
    if isinstance(read, BaseModel):
        yield from unknown_keys(document, read)
    elif isinstance(read, dict):
        for name, section in read.items():
            inner = document[name]
            if isinstance(inner, dict):
                for rest in _unknown_beneath(inner, section):
                    yield (name, *rest)


def key_text(place: Place) -> str:
    """Write a place as a person would: `process.command[1]`; an empty key as `""`."""
    text = ""
    for step in place:
        name = step if step != "" else '""'
        text += f"[{name}]" if isinstance(name, int) else f".{name}" if text else name
    return text


_COMPLAINTS: dict[str, str] = {
    "missing": "it is required and not there",
    "string_too_short": "it is empty",
    "string_unicode": "it is not text that can be written down (half of a surrogate pair)",
    "int_type": "give it as a whole number",
    "too_short": "the list is empty",
    "tuple_type": "give it as a list",
    "dict_type": _MAPPING_WANTED,
    "model_type": _MAPPING_WANTED,
}


def _fault(detail: ErrorDetails) -> Fault:
    place, kind = detail["loc"], detail["type"]
    found: object = detail["input"]
    match kind:
        case "string_type":
            return _text_wanted(place, found)
        case "literal_error":
            expected = str(detail["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
            return Fault(place, f"it can only be {expected}" if "," not in expected else f"it is one of {expected}")
        case _ if kind == _ABOUT_KEY:
            return Fault(place[:-1], detail["msg"])  # pydantic adds "[key]"
        case _:
            return Fault(place, _COMPLAINTS.get(kind, detail["msg"]))


def _text_wanted(place: Place, found: object) -> Fault:
    if found is None:
        return Fault(place, "it is empty; give it as text")
    if isinstance(found, list | dict):
        return Fault(place, f"give it as text, not as a {'list' if isinstance(found, list) else 'mapping'}")
    return Fault(place, "give it as text", wants_text=True)

"""Which capsule is meant, where does a store keep it, and what stands for everything in its folder?

A store is a directory that holds capsules as `<name>/<version>/murmur.yaml`, a name with a scope as two levels. The
digest is what an approval to launch a capsule is bound to.
"""

import hashlib
import re

from murmur.domain.errors import CapsuleNotFound
from murmur.domain.value import Value
from murmur.domain.visible_text import visible_start

_NAME_PART = r"[a-z0-9-]+"
CAPSULE_NAME = re.compile(rf"{_NAME_PART}(?:/{_NAME_PART})?")
LONGEST_VERSION = 128
MANIFEST = "murmur.yaml"
MANIFEST_LIMIT = 256 * 1024
"""Bytes that a manifest has at most."""

FOLDER_LIMIT = 1024 * 1024 * 1024
"""Bytes that all files of a capsule have together at most: each launch reads them twice."""
ENTRIES_LIMIT = 100_000
"""How many files and directories a capsule has at most."""
DEPTH_LIMIT = 64
"""How many directories may lie within one another. One descriptor is open for each."""

_SHOWN = 100


class CapsuleReference(Value):
    """A name and a version that a capsule may have, checked."""

    name: str
    version: str

    @property
    def levels(self) -> tuple[str, ...]:
        """The directories that lead from a store to the capsule's folder."""
        return (*self.name.split("/"), self.version)

    def __str__(self) -> str:
        return f"{self.name}@{visible_start(self.version, _SHOWN)}"


def capsule_reference(name: str, version: str) -> CapsuleReference:
    """Check a name and a version; raise `CapsuleNotFound` for what no capsule has, which could lead elsewhere."""
    if CAPSULE_NAME.fullmatch(name) is None:
        raise CapsuleNotFound(
            f"no capsule is called {_quoted(name)}",
            hint="a name is made of a-z, 0-9 and -, with one / where there is a scope: scope/name",
        )
    if not is_version(version):
        raise CapsuleNotFound(
            f"no capsule has the version {_quoted(version)}",
            hint=f"a version has 1 to {LONGEST_VERSION} characters, no / and no .., and does not start with a dot",
        )
    return CapsuleReference(name, version)


def parse_reference(text: str) -> CapsuleReference:
    """Read `NAME@VERSION`; raise `CapsuleNotFound`."""
    name, separator, version = text.partition("@")
    if not separator:
        raise CapsuleNotFound(
            f"{_quoted(text)} names no version of a capsule", hint="give both: NAME@VERSION, such as worker@1.0.0"
        )
    return capsule_reference(name, version)


def is_name_part(text: str) -> bool:
    """Whether that can be a capsule's name without a scope, or a scope."""
    return re.fullmatch(_NAME_PART, text) is not None


def is_version(text: str) -> bool:
    """Whether a capsule can have that version."""
    try:
        text.encode()
    except UnicodeEncodeError:  # Half of a surrogate pair, or bytes that are not UTF-8: no record could name it.
        return False
    if not 0 < len(text) <= LONGEST_VERSION or text.startswith("."):
        return False
    return not any(part in text for part in ("/", "..", "\0"))


def version_order(version: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return what versions are sorted by: their numbers as numbers, so that 1.10 comes after 1.9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version)
    # And by the text itself, where they differ in zeros alone.
    return [(1, int(part), "") if part[0] in "0123456789" else (0, 0, part) for part in parts], version


def _quoted(text: str) -> str:
    return f"'{visible_start(text, _SHOWN)}'"


class FolderDigest:
    """The SHA-256 of a folder, taken in entry by entry.

    Entries come sorted by the names of their path, as bytes; each directory comes before what it holds. Covered are
    an entry's kind (`d` directory, `f` file, `x` file that its owner may execute), its path relative to the folder,
    and a file's content. Modes, owners and times are not.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"murmur-capsule-v1\n")

    def add_directory(self, path: bytes) -> None:
        """Take in a directory; what it holds follows."""
        self._add(b"d", path)

    def add_file(self, path: bytes, content: bytes, *, executable: bool) -> None:
        """Take in a file; `content` is the SHA-256 of what it holds, 32 bytes."""
        self._add(b"x" if executable else b"f", path)
        self._hash.update(content)

    def _add(self, kind: bytes, path: bytes) -> None:
        # With its length before it, so that no path can pass for the end of one and the start of another entry.
        self._hash.update(kind + len(path).to_bytes(8, "big") + path)

    def hex(self) -> str:
        """Return what stands for all that was taken in, in 64 hex digits."""
        return self._hash.hexdigest()

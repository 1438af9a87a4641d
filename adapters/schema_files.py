"""Where are the JSON Schemas of the door's payloads, and do they still say what the models say?

Run as a module with a directory, it writes them there.
"""

import json
import sys
from pathlib import Path

from murmur.domain.wire import PAYLOADS


def write_schemas(directory: Path) -> list[str]:
    """Write one `<name>.json` for each payload, making the directory; return the names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    contents = _contents()
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    return list(contents)


def drifted(directory: Path) -> list[str]:
    """Return the names of files that are missing, differ from the models, or that nobody generates."""
    contents = _contents()
    wrong = {name for name, content in contents.items() if not _holds(directory / name, content)}
    strays = {path.name for path in directory.iterdir()} - contents.keys() if directory.is_dir() else set()
    return sorted(wrong | strays)


def _contents() -> dict[str, bytes]:
    contents = {
        f"{name}.json": json.dumps(model.model_json_schema(by_alias=True), indent=2, sort_keys=True).encode() + b"\n"
        for name, model in PAYLOADS.items()
    }
    return dict(sorted(contents.items()))


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


if __name__ == "__main__":
    for written in write_schemas(Path(sys.argv[1])):
        sys.stdout.write(f"{written}\n")

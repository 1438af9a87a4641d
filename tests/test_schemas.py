"""The schemas in the documents, held to the models they are made from."""

import json
from pathlib import Path

import pytest

from murmur.adapters.schema_files import drifted, write_schemas
from murmur.domain.wire import PAYLOADS

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where schemas may be written; not there yet."""
    return tmp_path / "docs" / "schemas"


@pytest.mark.spec("M1")
def test_the_schemas_in_the_documents_are_what_the_models_say() -> None:
    assert drifted(SCHEMAS) == [], "run `make schemas`, and remove what no payload has any more"


@pytest.mark.spec("M1")
def test_each_payload_has_one_file_of_json_with_sorted_keys(place: Path) -> None:
    written = write_schemas(place)
    assert written == sorted(f"{name}.json" for name in PAYLOADS)
    assert sorted(path.name for path in place.iterdir()) == written
    for name in written:
        text = (place / name).read_text(encoding="utf-8")
        assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


@pytest.mark.spec("M1")
def test_what_was_just_written_has_not_drifted(place: Path) -> None:
    write_schemas(place)
    write_schemas(place)
    assert drifted(place) == []


@pytest.mark.spec("M1")
def test_a_changed_a_missing_and_a_stray_file_are_each_named(place: Path) -> None:
    write_schemas(place)
    (place / "task.json").write_bytes((place / "task.json").read_bytes() + b"\n")
    (place / "refusal.json").unlink()
    (place / "stray.json").touch()
    assert drifted(place) == ["refusal.json", "stray.json", "task.json"]


@pytest.mark.spec("M1")
def test_without_a_directory_every_schema_is_missing(place: Path) -> None:
    assert drifted(place) == sorted(f"{name}.json" for name in PAYLOADS)

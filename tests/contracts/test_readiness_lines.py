"""First lines that a child might print, and what a launcher makes of each (Y1-Y3).

`cases.json` has the verdicts of the Rust launcher's own checks. `own.json` has further lines, as text or as hex, with
verdicts worked out from the rules of serde_json and of Rust's paths; where ours differs, `beyond` says why.
"""

import json
from pathlib import Path, PurePosixPath

import pytest

from murmur.domain.launch.readiness import ReadinessRefused, parse_readiness

LINES = Path(__file__).parents[2] / "fixtures" / "readiness"
SHIPPED = json.loads((LINES / "cases.json").read_text())
OWN = json.loads((LINES / "own.json").read_text())

REFUSALS = {
    "unparsable": ("the child capsule's first --json line did not parse: ", ""),
    "no session_id": ("the child capsule's --json line carried no session_id", ""),
    "no records_dir": (
        "the child capsule's --json line carried no records_dir, so its outcome has nowhere to be read from",
        "",
    ),
    "records_dir refused": (
        "the child capsule's --json line named ",
        ", so its outcome has nowhere to be read from",
    ),
}


def verdict(line: str | bytes, root: str) -> dict[str, object]:
    """Say what is taken of a line, or which check refused it."""
    try:
        readiness = parse_readiness(line, PurePosixPath(root))
    except ReadinessRefused as refused:
        text = str(refused)
        kinds = [kind for kind, (start, end) in REFUSALS.items() if text.startswith(start) and text.endswith(end)]
        assert len(kinds) == 1, text
        return {"refused": kinds[0]}
    token = readiness.door_token
    return {
        "ok": {
            "session_id": readiness.session_id,
            "records_dir": str(readiness.records_dir),
            "capsule_url": readiness.capsule_url,
            "door_token": None if token is None else token.expose(),
            "formation_id": readiness.formation_id,
        }
    }


@pytest.mark.spec("Y1", "Y2", "Y3")
@pytest.mark.parametrize("case", SHIPPED["cases"])
def test_a_first_line_is_taken_or_refused_as_by_the_rust_launcher(case: str) -> None:
    expected = dict(SHIPPED["cases"][case])
    line = expected.pop("line")
    if "ok" in expected:
        taken = dict(expected["ok"])
        url = taken.pop("url")
        expected = {"ok": {**taken, "capsule_url": f"http://{url}" if url else ""}}
    assert verdict(line, SHIPPED["records_root"]) == expected
    assert verdict(line.encode(), SHIPPED["records_root"]) == expected


@pytest.mark.spec("Y1", "Y2", "Y3")
@pytest.mark.parametrize("case", OWN["cases"])
def test_a_first_line_is_taken_or_refused_by_the_rule_and_not_by_the_list(case: str) -> None:
    entry = OWN["cases"][case]
    expected = {name: entry[name] for name in ("ok", "refused") if name in entry}
    if "hex" in entry:
        assert verdict(bytes.fromhex(entry["hex"]), OWN["records_root"]) == expected
        return
    assert verdict(entry["line"], OWN["records_root"]) == expected
    assert verdict(entry["line"].encode(), OWN["records_root"]) == expected

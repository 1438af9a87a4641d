"""What the pages say about the code, held to the code."""

import inspect
import os
import re
import subprocess
from pathlib import Path

import pytest
import typer

from murmur.adapters.door_places import CONNECTIONS_LIMIT
from murmur.adapters.door_server import REQUEST_TIMEOUT
from murmur.domain import errors
from murmur.domain.door import STOP_ITEMS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md")
    for page in ROOT.glob(pattern)
    if not page.relative_to(ROOT).parts[0].startswith(".")
)

_KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.MurmurError)]
_STATUSES = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}


def _tracked_texts() -> dict[Path, str]:
    """Return every tracked file that is text; without git, the pages."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    paths = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name] or PAGES
    texts = {}
    for path in paths:
        if path.is_file() and not path.is_symlink():
            try:
                texts[path] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return texts


def _sections(page: Path) -> dict[str, str]:
    """Return a page's second-level sections by their headings."""
    _, *sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {section.partition("\n")[0].strip(): section.partition("\n")[2] for section in sections}


def test_every_error_code_has_its_section_and_every_section_its_code() -> None:
    assert list(_sections(ROOT / "docs" / "errors.md")) == sorted({kind.code for kind in _KINDS})


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
def test_an_error_s_section_names_its_exit_status(kind: type[errors.MurmurError]) -> None:
    section = _sections(ROOT / "docs" / "errors.md")[kind.code]
    assert re.search(rf"\bexit status {kind.exit_status}\b", section, re.IGNORECASE)


def test_the_readme_s_exit_statuses_are_the_constants() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(row) for row in rows] == sorted({0, typer.BadParameter.exit_code} | _STATUSES)


def test_the_readme_names_every_command_and_no_other() -> None:
    main = (ROOT / "cli" / "main.py").read_text(encoding="utf-8")
    commands = re.findall(r'^    "(\w+)": "murmur\.cli\.', main, re.MULTILINE)
    rows = re.findall(r"^\| `mur (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(rows)) == sorted(commands)


def test_the_readme_names_every_option_of_run() -> None:
    source = (ROOT / "cli" / "run.py").read_text(encoding="utf-8")
    options = set(re.findall(r'typer\.Option\([^)]*?"(--[\w-]+)', source)) - {"--env-file"} | {"--no-env-file"}
    table = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("The options of `mur run`")[2].partition("\n#")[0]
    )
    rows = re.findall(r"^\| (`--[^|]*(?:\\\|[^|]*)*)\|", table, re.MULTILINE)
    assert set(re.findall(r"--[\w-]+", " ".join(rows))) == options - {"--manifest"}


def test_every_command_of_a_console_example_exists() -> None:
    main = (ROOT / "cli" / "main.py").read_text(encoding="utf-8")
    commands = set(re.findall(r'^    "(\w+)": "murmur\.cli\.', main, re.MULTILINE))
    used = [
        command
        for page in PAGES
        for command in re.findall(r"^\$ mur (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(used) > 10
    assert set(used) <= commands


def test_the_pages_state_the_door_s_limits_as_they_are() -> None:
    stated = f"serves {CONNECTIONS_LIMIT} connections"
    assert stated in (ROOT / "README.md").read_text(encoding="utf-8")
    assert stated in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert f"a request has {REQUEST_TIMEOUT:.0f} seconds" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"at most {STOP_ITEMS} canceled tasks" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w.-]+\.(?:py|toml))`", text)
    assert len(named) > 30
    assert [name for name in named if not name.startswith("~") and not (ROOT / name).exists()] == []


def test_the_architecture_names_every_port() -> None:
    ports = re.findall(r"^class (\w+)\(Protocol\)", (ROOT / "domain" / "ports.py").read_text("utf-8"), re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert ports
    assert set(ports) <= set(rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))]
    relative = [target for target in targets if target and "://" not in target]
    assert [target for target in relative if not (page.parent / target).exists()] == []


# Where anybody may keep a clone: these say nothing about a machine, and examples are entitled to them.
_ANYBODY_S = {
    Path(place)
    for place in ("/", "/app", "/home", "/mnt", "/opt", "/root", "/src", "/srv", "/tmp", "/usr/src", "/var/tmp")
}


def test_no_tracked_file_holds_a_path_of_this_machine() -> None:
    places = [re.escape(f"{place}/") for place in (ROOT, ROOT.parent) if place not in _ANYBODY_S]
    beneath = re.compile(rf"(?<![\w.~-])({'|'.join(places)})")
    held = [path for path, text in _tracked_texts().items() if beneath.search(text)]
    assert held == []


def test_no_tracked_file_holds_an_address_of_a_package_index() -> None:
    # Written in parts, so that this file does not hold what it looks for.
    index = re.compile("/simp" + r"le['\"/ ]|inde" + r'x-url|"resolved": *"htt' + "p")
    held = [path for path, text in _tracked_texts().items() if path.name != "LICENSE" and index.search(text)]
    assert held == []

"""The manifests pasted in `docs/wrap-an-agent.md`, run as they are written there."""

import json
import os
import re
import signal
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from murmur.domain.manifest import SCOPES, Manifest
from tests.cli.conftest import Hosted, Hosts, mur, mur_json

PAGE = Path(__file__).parents[2] / "docs" / "wrap-an-agent.md"
MANIFESTS = dict(
    re.findall(r"^<!-- manifest: ([\w-]+) -->\n```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
)

# Both read the whole prompt from stdin, report progress on stderr and print the answer alone on stdout. What they
# answer with shows how they were called and which key they were given.
CLAUDE = """#!/bin/sh
[ "$*" = "-p" ] || { echo "unexpected arguments: $*" >&2; exit 2; }
printf 'claude was asked: %s, with key %s\\n' "$(cat)" "$ANTHROPIC_API_KEY"
"""
CODEX = """#!/bin/sh
[ "$*" = "exec -" ] || { echo "unexpected arguments: $*" >&2; exit 2; }
echo thinking >&2
printf 'codex was asked: %s, with key %s\\n' "$(cat)" "$OPENAI_API_KEY"
"""
KEYS = {"ANTHROPIC_API_KEY": "sk-ant", "OPENAI_API_KEY": "sk-oai"}


@pytest.fixture
def stand_ins(tmp_path: Path) -> dict[str, str]:
    """Put executables named claude and codex on the PATH; return the environment that finds them."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, script in (("claude", CLAUDE), ("codex", CODEX)):
        (place / name).write_text(script)
        (place / name).chmod(0o755)
    return {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", **KEYS}


def started(hosts: Hosts, tmp_path: Path, name: str, environment: dict[str, str]) -> Hosted:
    manifest = tmp_path / "project" / "murmur.yaml"
    manifest.parent.mkdir()
    manifest.write_text(MANIFESTS[name])
    return hosts.from_manifest(manifest, **environment)


def test_the_page_holds_the_manifests_that_are_tested_here() -> None:
    assert list(MANIFESTS) == ["claude", "codex", "script", "threaded", "once"]


@pytest.mark.spec("M1")
def test_claude_takes_one_task_after_the_other_and_sees_only_its_own_key(
    hosts: Hosts, tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    hosted = started(hosts, tmp_path, "claude", stand_ins)
    for text in ("first", "second"):
        assert mur("send", "@1", text).stdout == f"claude was asked: {text}, with key sk-ant\n"
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0


@pytest.mark.spec("I3")
def test_codex_s_door_has_a_token_for_the_operator_and_one_for_the_watcher(
    hosts: Hosts, tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    started(hosts, tmp_path, "codex", stand_ins)
    operator, watcher = mur("token", "@1").stdout, mur("token", "@1", "--credential", "watcher").stdout
    assert operator.startswith("mdt1.")
    assert watcher.startswith("mdt1.")
    assert operator != watcher


@pytest.mark.spec("M1")
def test_codex_takes_one_task_behind_a_token_and_is_gone(
    hosts: Hosts, tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    hosted = started(hosts, tmp_path, "codex", stand_ins)
    task = mur_json("send", "@1", "fix it")
    assert (task["state"], task["result"]) == ("completed", "codex was asked: fix it, with key sk-oai\n")
    assert hosted.wait() == 0
    assert (hosted.records / "out" / "result.txt").read_text() == task["result"]
    assert mur_json("ps") == []


@pytest.mark.spec("M1")
def test_the_script_counts_words_until_it_is_drained(hosts: Hosts, tmp_path: Path) -> None:
    hosted = started(hosts, tmp_path, "script", {})
    assert mur("send", "@1", "one two three").stdout == "3 words\n"
    assert mur_json("control", "@1", "drain")["state"] == "draining"
    assert hosted.wait() == 0


@pytest.mark.spec("M1")
def test_the_script_can_be_paused_and_resumed(hosts: Hosts, tmp_path: Path) -> None:
    started(hosts, tmp_path, "script", {})
    assert mur_json("control", "@1", "pause")["state"] == "paused"
    assert mur_json("control", "@1", "resume")["state"] == "running"


@pytest.mark.spec("M1")
def test_claude_is_told_what_was_said_before_in_the_same_conversation(
    hosts: Hosts, tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    started(hosts, tmp_path, "threaded", stand_ins)
    first = mur("send", "@1", "--context", "trip", "where to?").stdout
    assert first == "claude was asked: where to?, with key sk-ant\n"
    second = mur("send", "@1", "--context", "trip", "and how?").stdout
    *turns, asked = second.removeprefix("claude was asked: ").splitlines()
    assert asked == "and how?, with key sk-ant"
    assert [(turn["role"], turn["text"]) for turn in map(json.loads, turns)] == [
        ("user", "where to?"),
        ("agent", first),
    ]
    assert mur("send", "@1", "elsewhere").stdout == "claude was asked: elsewhere, with key sk-ant\n"


@pytest.mark.spec("M1")
def test_the_script_that_runs_once_leaves_its_result_where_the_page_says(tmp_path: Path, home: Path) -> None:
    (tmp_path / "murmur.yaml").write_text(MANIFESTS["once"])
    (tmp_path / "names.txt").write_text("b\na\nb\n")
    options = ("--manifest", str(tmp_path / "murmur.yaml"), "--workdir", str(tmp_path), "-v")
    ended = mur("run", "--json", *options, "--task", str(tmp_path / "names.txt"))
    ready = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ready["records_dir"] == f"{home}/.murmur/records{tmp_path}/{ready['session_id']}"
    assert Path(ready["records_dir"], "out", "result.txt").read_text() == "a\nb\n"
    assert mur_json("ps") == []


def rows(heading: str) -> dict[str, str]:
    """Return the first and the second column of the table beneath a heading of the page."""
    section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^|]+)` \| (.*?) \|", section, re.MULTILINE))


def keys_of(section: type[BaseModel], before: str = "") -> Iterator[tuple[str, str]]:
    """Give every key beneath a section of the manifest, with its default as the page writes it."""
    for name, field in section.model_fields.items():
        place = f"{before}{name}"
        inner = next((kind for kind in models_in(field.annotation) if kind.model_fields), None)
        if inner is not None:
            is_named = typing.get_origin(field.annotation) is dict
            yield from keys_of(inner, f"{place}.NAME." if is_named else f"{place}.")
        elif field.is_required():
            yield place, "required"
        else:
            default = "[]" if field.default == () else field.default
            yield place, "not there" if default is None else f"`{default}`"


def models_in(kind: object) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in typing.get_args(kind):
        yield from models_in(part)


def test_the_page_has_every_key_of_a_manifest_with_its_default() -> None:
    table = rows("What a manifest says")
    keys = dict(keys_of(Manifest))
    assert {key: default for key, default in table.items() if key in keys} == keys
    assert set(table) - set(keys) == set(SCOPES)

"""Which manifests are read, and what is said of the others: file, line and key of the first fault."""

import errno
import json
import os
import string
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.adapters import manifest_file
from murmur.adapters.manifest_file import parse_manifest, read_manifest
from murmur.domain.capsule_store import MANIFEST_LIMIT
from murmur.domain.errors import FAILED, ManifestRefused
from murmur.domain.manifest import (
    AllowedCapsules,
    AllowedVariables,
    Authentication,
    Capabilities,
    Control,
    Credential,
    Lifecycle,
    Manifest,
    Network,
    Process,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "manifests"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))
WARNINGS: dict[str, list[str]] = EXPECTED["warnings"]
REFUSALS: dict[str, str] = EXPECTED["refusals"]
WHOLE = (FIXTURES / "good" / "whole.yaml").read_bytes()
SMALLEST = (FIXTURES / "good" / "smallest.yaml").read_bytes()
LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with libyaml and without it."""
    monkeypatch.setattr(manifest_file, "_LOADER", request.param)


def refusal(content: bytes, file: str = "murmur.yaml") -> ManifestRefused:
    with pytest.raises(ManifestRefused) as refused:
        parse_manifest(content, file)
    return refused.value


def refusal_of(path: Path) -> ManifestRefused:
    with pytest.raises(ManifestRefused) as refused:
        read_manifest(path)
    return refused.value


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("case", sorted(REFUSALS))
def test_what_is_wrong_is_told_by_file_line_and_key(case: str) -> None:
    message = refusal((FIXTURES / "bad" / f"{case}.yaml").read_bytes(), f"{case}.yaml").message
    before, rest_is_the_parser_s, _ = REFUSALS[case].partition("…")
    assert message == REFUSALS[case] or (rest_is_the_parser_s and message.startswith(before))
    assert "\n" not in message


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("case", sorted(WARNINGS))
def test_a_good_manifest_reads_and_its_unknown_keys_are_warnings_with_file_line_and_key(case: str) -> None:
    manifest, warnings = read_manifest(FIXTURES / "good" / f"{case}.yaml")
    assert manifest.name in {"worker", "team/worker"}
    where = FIXTURES / "good" / f"{case}.yaml"
    assert warnings == [f"{where}:{each}: this key is not known and has no effect" for each in WARNINGS[case]]


def test_every_manifest_has_a_verdict_and_every_verdict_a_manifest() -> None:
    assert {path.stem for path in (FIXTURES / "good").iterdir()} == set(WARNINGS)
    assert {path.stem for path in (FIXTURES / "bad").iterdir()} == set(REFUSALS)


@pytest.mark.usefixtures("loader")
def test_a_whole_manifest_is_read_as_it_is_written() -> None:
    manifest, _ = parse_manifest(WHOLE, "murmur.yaml")
    assert manifest == Manifest(
        name="team/worker",
        version="0.1.0",
        process=Process(command=("python3", "agent.py"), kind="script"),
        capabilities=Capabilities(
            env=AllowedVariables(allow=("API_KEY", "_x1")), spawn=AllowedCapsules(allow=("other", "team/other-2"))
        ),
        network=Network(
            internal_port=65535,
            authentication=Authentication(
                scheme="bearer",
                credentials={
                    "watcher": Credential(scopes=("tasks/get", "stream/watch")),
                    "nobody": Credential(scopes=()),
                },
            ),
        ),
        control=Control(),
        lifecycle=Lifecycle(task_acceptance="queue", after_task="sleep", queue_depth=10_000),
    )


@pytest.mark.usefixtures("loader")
def test_a_bare_control_is_a_control() -> None:
    assert parse_manifest(SMALLEST, "murmur.yaml")[0].control is None
    assert parse_manifest(SMALLEST + b"control:\n", "murmur.yaml")[0].control == Control()


def test_quoted_text_and_signs_without_a_meaning_are_text() -> None:
    manifest, _ = read_manifest(FIXTURES / "good" / "text_that_means_something_elsewhere.yaml")
    assert manifest.process.command == ("python3", "0.1", "yes", "=", "<<")


@pytest.mark.usefixtures("loader")
def test_a_manifest_may_start_with_a_byte_order_mark() -> None:
    assert parse_manifest(b"\xef\xbb\xbf" + SMALLEST, "murmur.yaml") == parse_manifest(SMALLEST, "murmur.yaml")


@pytest.mark.parametrize("case", ["command_text", "alias", "merge_key", "tag_text", "authentication_null"])
def test_a_hint_says_what_to_do_where_the_message_does_not(case: str) -> None:
    assert refusal((FIXTURES / "bad" / f"{case}.yaml").read_bytes()).hint


def test_a_refusal_ends_with_a_failure() -> None:
    assert (refusal(b"").code, refusal(b"").exit_status) == ("E-RUN-907", FAILED)


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SMALLEST + b"x: \xff\n", "murmur.yaml:5: it is not UTF-8"),
        (b"name: w\xf6rker\n", "murmur.yaml:1: it is not UTF-8"),
        (SMALLEST.decode().encode("utf-16"), "murmur.yaml:1: it is not UTF-8"),
        (SMALLEST.decode().encode("utf-16-le"), "murmur.yaml:1: YAML does not allow the character \\x00"),
        (SMALLEST + b"\0", "murmur.yaml:5: YAML does not allow the character \\x00"),
        (SMALLEST + b"x: \x1b[31m\n", "murmur.yaml:5: YAML does not allow the character \\x1b"),
    ],
)
def test_bytes_that_are_no_text_are_told_by_their_line(content: bytes, message: str) -> None:
    assert refusal(content).message == message


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("text", [r'"\ud800"', r'"\UFFFFFFFF"', r'"\U00110000"'])
def test_an_escape_for_a_character_that_there_is_not_is_refused(text: str) -> None:
    assert refusal(SMALLEST.replace(b"agent.py", text.encode())).message.startswith("murmur.yaml:")


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_nesting_costs_no_stack(opening: str) -> None:
    content = SMALLEST + b"x: " + opening.encode() * 20_000 if opening[0] in "[{" else opening.encode() * 20_000
    assert refusal(content).message.startswith("murmur.yaml:")


def test_an_anchor_bomb_costs_nothing() -> None:
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 1000)]
    content = "\n".join(["a0: &a0 x", *lines]).encode()
    before = time.process_time()
    assert refusal(content).message == "murmur.yaml:1: a0: aliases are not used in a manifest"
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize(
    ("list_of", "place"),
    [
        (b"process: {command: [%s]}", "process.command"),
        (b"process: {command: [x]}\ncapabilities: {env: {allow: [%s]}}", "capabilities.env.allow"),
        (b"process: {command: [x]}\nx: {%s}", "x"),
    ],
)
def test_many_faults_cost_no_more_than_one(list_of: bytes, place: str) -> None:
    content = SMALLEST.partition(b"process")[0] + list_of
    many = b",".join([b"1"] * 120_000) if b"[%s]" in list_of else b",".join(b'"%d"' % each for each in range(1, 30_000))
    before = time.process_time()
    refused = refusal(content % many)
    assert refused.message.endswith(": the manifest holds more than 5,000 values")
    assert refused.message.split(": ")[1] == place
    refusal(content % b",".join([b"1"] * 4_000))
    assert time.process_time() - before < 1


def test_a_number_of_many_parts_costs_nothing() -> None:
    content = SMALLEST + b"x: " + b":".join([b"1"] * 100_000)  # In YAML, 1:30 is ninety.
    before = time.process_time()
    assert len(parse_manifest(content, "murmur.yaml")[1]) == 1
    assert time.process_time() - before < 1


def test_no_value_is_repeated_but_a_name_or_a_version() -> None:
    for text in (
        SMALLEST.replace(b"[python3, agent.py]", b"[a, 5318008]"),
        SMALLEST.replace(b"[python3, agent.py]", b'"5318008"'),
        SMALLEST + b"  kind: '5318008'\n",
        SMALLEST + b"capabilities: {env: {allow: ['5318008']}}\n",
        SMALLEST + b"lifecycle: {queue_depth: 5318008}\n",
    ):
        refused = refusal(text)
        assert "5318008" not in refused.message + (refused.hint or "")
        assert refused.__cause__ is None


def test_a_key_from_the_file_cannot_act_on_a_terminal_or_fill_it() -> None:
    _, (warning,) = parse_manifest(SMALLEST + b'"\\e[31m\\n": 1\n', "murmur.yaml")
    assert warning == "murmur.yaml:5: \\x1b[31m\\x0a: this key is not known and has no effect"
    _, (warning,) = parse_manifest(SMALLEST + b"? " + b"k" * 5000 + b"\n: 1\n", "murmur.yaml")
    assert len(warning) < 200


def test_an_empty_key_is_named_too() -> None:
    _, warnings = parse_manifest(SMALLEST + b'"": 1\ncontrol: {"": 1}\n', "murmur.yaml")
    assert [warning.split(": ")[1] for warning in warnings] == ['""', 'control.""']


def test_a_file_is_named_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("murmur.yaml").write_bytes(SMALLEST.replace(b'"0.1.0"', b"0.1"))
    assert refusal_of(Path("murmur.yaml")).message == 'murmur.yaml:2: version: give it as text: version: "0.1"'


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    refused = refusal_of(tmp_path / "murmur.yaml")
    assert refused.message == f"{tmp_path}/murmur.yaml: there is no such file"
    assert refused.hint == "give the path of a murmur.yaml"


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert refusal_of(tmp_path).message == f"{tmp_path}: it is a directory"


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "murmur.yaml")
    assert refusal_of(tmp_path / "murmur.yaml").message == f"{tmp_path}/murmur.yaml: it is not a regular file"


def test_a_device_is_refused() -> None:
    assert refusal_of(Path("/dev/zero")).message == "/dev/zero: it is not a regular file"


@pytest.mark.parametrize("path", ["a\0b", "a" * 300, "murmur.yaml/murmur.yaml", "loop"])
def test_a_path_that_leads_nowhere_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "murmur.yaml").write_bytes(SMALLEST)
    (tmp_path / "loop").symlink_to("loop")
    assert "\0" not in refusal_of(tmp_path / path).message


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    (tmp_path / "murmur.yaml").write_bytes(SMALLEST)
    monkeypatch.setattr(os, "open", refusing)  # The file's mode means nothing to root.
    assert refusal_of(tmp_path / "murmur.yaml").message == f"{tmp_path}/murmur.yaml: permission denied"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "murmur.yaml").symlink_to(FIXTURES / "good" / "smallest.yaml")
    assert read_manifest(tmp_path / "murmur.yaml")[0].name == "worker"


def test_a_file_of_the_limit_is_read_and_one_byte_more_is_refused_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "murmur.yaml"
    path.write_bytes(SMALLEST + b"#" * (MANIFEST_LIMIT - len(SMALLEST)))
    assert read_manifest(path)[0].name == "worker"
    with path.open("ab") as file:
        file.write(b"#")
    monkeypatch.delattr(os, "open")
    assert refusal_of(path).message == f"{path}: it is larger than 256 KiB"


@pytest.mark.skipif(not Path("/proc/kallsyms").exists(), reason="a file that does not say its size")
def test_a_file_that_does_not_say_its_size_is_read_no_further_than_the_limit() -> None:
    assert Path("/proc/kallsyms").stat().st_size == 0
    assert refusal_of(Path("/proc/kallsyms")).message == "/proc/kallsyms: it is larger than 256 KiB"


def message_about(content: bytes) -> str | None:
    """Return why it is refused, or nothing if it reads; any other exception is the test's failure."""
    try:
        parse_manifest(content, "murmur.yaml")
    except ManifestRefused as refused:
        return refused.message
    return None


def parses_or_is_refused(content: bytes) -> None:
    message = message_about(content)
    assert message is None or (message.startswith("murmur.yaml:") and len(message.splitlines()) == 1)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_random_bytes_are_refused_and_nothing_worse(content: bytes) -> None:
    parses_or_is_refused(content)


@given(st.text(st.sampled_from("\t\n -:?[]{},#&*!|>'\"%@`\\<=~0123456789abux._/é\u2028\x85\ufeff"), max_size=80))
@settings(deadline=None)
def test_random_yaml_is_refused_and_nothing_worse(text: str) -> None:
    parses_or_is_refused(text.encode())


_CHANGES = st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 12), st.binary(max_size=6) | st.sampled_from(
    [b"&a ", b"*a", b"!!x ", b"<<", b"~", b"\n", b"- ", b"? ", b": ", b"[", b"}", b"'", b'"', b"|", b"0.1", b"\\ud800"]
))  # fmt: skip


@pytest.mark.parametrize("loader_type", LOADERS, ids=lambda loader: loader.__name__)
@given(changes=st.lists(_CHANGES, min_size=1, max_size=4))
@settings(deadline=None, max_examples=80)
def test_a_good_manifest_changed_anywhere_is_read_or_refused(
    loader_type: type[yaml.SafeLoader], changes: list[tuple[int, int, bytes]]
) -> None:
    content = WHOLE
    for start, length, instead in changes:
        content = content[:start] + instead + content[start + length :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_file, "_LOADER", loader_type)
        parses_or_is_refused(content)


_WORDS = st.text(string.ascii_letters + string.digits + "_-/ .:'\"\\é", max_size=8)
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=6,
)
_SECTIONS = ("name", "version", "process", "capabilities", "network", "control", "lifecycle")


@given(st.sampled_from(_SECTIONS), _DOCUMENTS)
@settings(deadline=None, max_examples=60)
def test_any_value_for_any_key_is_read_or_refused_by_that_key(section: str, value: object) -> None:
    document = {"name": "worker", "version": "1", "process": {"command": ["cat"]}, section: value}
    content = yaml.safe_dump(document, sort_keys=False, default_flow_style=True).encode()
    message = message_about(content)
    assert message is None or message.split(": ")[1].startswith(section)

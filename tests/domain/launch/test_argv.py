"""What a child is started as, and in which folder (C2, C3)."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.launch.argv import (
    CHILDREN,
    WorkdirIdentity,
    child_argv,
    child_directory_name,
    format_identity,
    parse_identity,
)
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.secret import SpawnApproval

U64_MAX = 18446744073709551615


def request(deadline_unix_ms: int | None = None) -> ChildLaunchRequest:
    return ChildLaunchRequest(
        parent_records_dir=PurePosixPath("/r/ses_parent"),
        capsule_name="local/worker",
        capsule_version="0.1.0",
        grant=SpawnApproval("msa1.swordfish.mac"),
        env_allow=("SECRET",),
        roost_url="http://127.0.0.1:7700",
        spawner=Spawner("ses_parent", "ctx_parent", "http://127.0.0.1:7000"),
        completion_deadline=9.0,
        formation_id="frm_" + "0a" * 16,
        deadline_unix_ms=deadline_unix_ms,
    )


BASE = [
    "/opt/mur",
    "run",
    "--capsule",
    "local/worker",
    "--capsule-version",
    "0.1.0",
    "--workdir",
    "/r/ses_parent/children/worker-0123456789abcdef",
    "--workdir-identity",
    "2049:131",
    "--json",
    "--readiness-tokens",
    "--no-env-file",
    "--spawn-grant-stdin",
]


@pytest.mark.spec("C3", "I3")
@pytest.mark.parametrize(
    ("deadline", "tail"),
    [
        (None, []),
        (0, ["--inherited-deadline", "0"]),
        (1764432000123, ["--inherited-deadline", "1764432000123"]),
    ],
)
def test_the_argument_vector_is_exactly_this(deadline: int | None, tail: list[str]) -> None:
    argv = child_argv("/opt/mur", request(deadline), BASE[7], WorkdirIdentity(2049, 131))
    assert argv == BASE + tail


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("capsule", "name"),
    [
        ("worker", "worker-0123456789abcdef"),
        ("local/worker", "worker-0123456789abcdef"),
        ("a/b/worker", "worker-0123456789abcdef"),
        ("wor-ker", "wor-ker-0123456789abcdef"),
        ("../..", "..-0123456789abcdef"),
        ("worker/", "-0123456789abcdef"),
    ],
)
def test_a_childs_folder_is_named_by_the_bare_part_and_is_one_segment(capsule: str, name: str) -> None:
    assert CHILDREN == "children"
    assert child_directory_name(capsule, "0123456789abcdef") == name


@pytest.mark.spec("C3")
@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("0:0", (0, 0)),
        ("2049:131", (2049, 131)),
        ("007:00", (7, 0)),
        (f"{U64_MAX}:{U64_MAX}", (U64_MAX, U64_MAX)),
        ("0" * 5000 + "1:" + "0" * 5000, (1, 0)),
    ],
)
def test_an_identity_is_two_unsigned_64_bit_numbers(text: str, identity: tuple[int, int]) -> None:
    parsed = parse_identity(text)
    assert parsed == identity
    assert (parsed.device, parsed.inode) == identity


NO_NUMBERS = [
    "",
    "+1",
    "-1",
    "-0",
    " 1",
    "1 ",
    "1\n",
    "1_0",
    "1.0",
    "1e3",
    "0x1",
    "a",
    "\u0661",
    "\u00b2",
    "\uff11",
    "1\0",
    "18446744073709551616",
    "20000000000000000000",
    "9" * 4000,
    "100000000000000000000",
    "9" * 5000,
]


@pytest.mark.spec("C3")
@pytest.mark.parametrize("part", NO_NUMBERS, ids=range(len(NO_NUMBERS)))
def test_what_python_would_also_take_for_a_number_is_no_part_of_an_identity(part: str) -> None:
    for text in (f"{part}:1", f"1:{part}"):
        with pytest.raises(ValueError, match=r"^--workdir-identity ") as refused:
            parse_identity(text)
        assert str(refused.value) == f"--workdir-identity takes <dev>:<ino>, not {text!r}"


@pytest.mark.spec("C3")
@pytest.mark.parametrize("text", ["", ":", "1", "1:", ":1", "1:2:3", "1::2", "1/2", "1;2"])
def test_an_identity_is_split_at_its_first_colon(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--workdir-identity takes <dev>:<ino>, not "):
        parse_identity(text)


@pytest.mark.spec("C3")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(device=st.integers(0, U64_MAX), inode=st.integers(0, U64_MAX))
def test_an_identity_that_was_written_is_read_again(device: int, inode: int) -> None:
    identity = WorkdirIdentity(device, inode)
    assert format_identity(identity) == f"{device}:{inode}"
    assert parse_identity(format_identity(identity)) == identity

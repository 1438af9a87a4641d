"""Which row an operator's address means (section 15)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.addresses import Ambiguous, Found, NotFound, resolve

A = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
B = "ses_0198a7b3c4d57e6f8a9b0c1d2e3faaaa"
C = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f9aaa"
ROWS = [A, B, C]


@pytest.mark.spec("O1", "O2")
@pytest.mark.parametrize(("address", "row"), [("@1", 0), ("@2", 1), ("@3", 2), ("@03", 2), ("@" + "0" * 4000 + "1", 0)])
def test_a_number_counts_the_rows_from_1(address: str, row: int) -> None:
    assert resolve(address, ROWS) == Found(row)


@pytest.mark.spec("O2")
@pytest.mark.parametrize("address", ["@0", "@00", "@4", "@10", "@99999999999999999999", "@" + "9" * 100_000])
def test_a_number_of_no_row_is_not_found_and_says_how_many_there_are(address: str) -> None:
    assert resolve(address, ROWS) == NotFound("`mur ps` shows 3 rows")


@pytest.mark.spec("O2")
def test_a_number_with_more_leading_zeros_than_python_converts_is_no_error() -> None:
    assert isinstance(resolve("@" + "0" * 5000 + "1", ROWS), Found | NotFound)


@pytest.mark.spec("O2")
@pytest.mark.parametrize(("rows", "reason"), [([], "no session is running"), ([A], "`mur ps` shows 1 row")])
def test_the_rows_are_counted_in_a_persons_words(rows: list[str], reason: str) -> None:
    assert resolve("@2", rows) == NotFound(reason)


@pytest.mark.spec("O2")
@pytest.mark.parametrize(
    "address",
    [
        "@",
        "@-1",
        "@+1",
        "@ 1",
        "@1 ",
        "@1.0",
        "@1_0",
        "@0x1",
        "@x",
        "@@1",
        "@\u0661",
        "@\uff11",
        "@\u00b9",
        "@1\n",
        f"@{A}",
    ],
)
def test_only_ascii_digits_are_a_number(address: str) -> None:
    resolution = resolve(address, ROWS)
    assert isinstance(resolution, NotFound)
    assert "after @" in resolution.reason


@pytest.mark.spec("O2")
def test_a_number_means_a_row_even_where_an_id_ends_in_it() -> None:
    assert resolve("@2", ["ses_odd@2", A]) == Found(1)


@pytest.mark.spec("O2")
@pytest.mark.parametrize("address", [A, A.upper(), A.title(), "4051", "2e3f4051", "2E3F4051", A.removeprefix("ses_")])
def test_a_full_id_or_a_suffix_of_four_is_found_in_any_case(address: str) -> None:
    assert resolve(address, ROWS) == Found(0)


@pytest.mark.spec("O2")
@pytest.mark.parametrize("session_id", ["ses_ABCDEF", "SES_AbCdEf"])
def test_a_recorded_id_in_capitals_is_found_by_a_small_suffix(session_id: str) -> None:
    assert resolve("cdef", [A, session_id]) == Found(1)


@pytest.mark.spec("O2")
@pytest.mark.parametrize("address", ["", "1", "51", "051", "AAA"])
def test_fewer_than_four_characters_are_no_suffix(address: str) -> None:
    resolution = resolve(address, ROWS)
    assert isinstance(resolution, NotFound)
    assert "4 characters" in resolution.reason


@pytest.mark.spec("O2")
@pytest.mark.parametrize(
    "address", ["ses_", "0198a7b3", "4052", " 4051", "4051 ", "4051\n", "*4051", A + "0", "weaver"]
)
def test_a_prefix_a_middle_or_another_text_is_not_found(address: str) -> None:
    assert resolve(address, ROWS) == NotFound("no running capsule has that address")


@pytest.mark.spec("O2")
def test_a_suffix_of_several_ids_is_ambiguous_and_lists_them_all() -> None:
    ids = [B, A, "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4AAAA", B[:-5] + "0aaaa"]
    assert resolve("aaaa", ids) == Ambiguous((0, 2, 3))


@pytest.mark.spec("O2")
def test_a_full_id_that_is_also_the_suffix_of_another_means_itself() -> None:
    assert resolve("abcdef", ["ses_abcdef", "abcdef"]) == Found(1)
    assert resolve("ABCDEF", ["ses_abcdef", "abcdef", "x_abcdef"]) == Found(1)


@pytest.mark.spec("O2", "S5")
def test_a_full_id_in_its_own_case_means_itself_and_not_one_that_differs_in_case() -> None:
    assert resolve("ses_abcdef", ["ses_ABCDEF", "ses_abcdef"]) == Found(1)
    assert resolve("ses_ABCDEF", ["ses_ABCDEF", "ses_abcdef"]) == Found(0)


@pytest.mark.spec("O2")
def test_a_full_id_is_found_however_short_it_is() -> None:
    assert resolve("abc", ["xyz_abc", "abc"]) == Found(1)
    assert resolve("x", ["x"]) == Found(0)


@pytest.mark.spec("S5")
@pytest.mark.parametrize(
    "odd", ["../../x", "/etc/passwd", "ses_%s%n", "a b c d", "ses_\u202eabcd", ".*.*", "ses_é中文", "\x1b[31m"]
)
def test_an_odd_id_is_addressed_as_plain_text(odd: str) -> None:
    assert resolve(odd, [A, odd]) == Found(1)
    assert resolve(odd[-4:], [A, odd]) == Found(1)


@pytest.mark.spec("O2")
def test_a_pattern_matches_nothing_but_itself() -> None:
    assert isinstance(resolve(".{4}", ROWS), NotFound)
    assert isinstance(resolve("????", ROWS), NotFound)


@pytest.mark.spec("O2")
def test_nothing_is_found_where_nothing_runs() -> None:
    assert isinstance(resolve(A, []), NotFound)
    assert isinstance(resolve("@1", []), NotFound)


@pytest.mark.spec("O2")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(address=st.text(max_size=12), ids=st.lists(st.text(max_size=12), max_size=6))
def test_whatever_is_resolved_is_a_row_that_ends_in_the_address(address: str, ids: list[str]) -> None:
    match resolve(address, ids):
        case Found(position):
            assert address.startswith("@") or ids[position].lower().endswith(address.lower())
        case Ambiguous(positions):
            assert len(positions) > 1
            assert all(ids[position].lower().endswith(address.lower()) for position in positions)
        case NotFound(reason):
            assert reason

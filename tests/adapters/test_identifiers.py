"""Fresh ids, as many as anyone asks for at once."""

import re
import threading
import time
import uuid
from typing import get_args

import pytest

from murmur.adapters.identifiers import fresh_hex, mint
from murmur.domain.ids import IdPrefix


@pytest.mark.spec("I1")
@pytest.mark.parametrize("prefix", get_args(IdPrefix))
def test_an_id_is_its_prefix_and_a_uuid7_in_lowercase_hex(prefix: IdPrefix) -> None:
    minted = mint(prefix)
    assert re.fullmatch(r"(ses|frm|dlg|tsk|ctx|msg|req)_[0-9a-f]{32}", minted)
    parsed = uuid.UUID(minted.removeprefix(prefix))
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)


@pytest.mark.spec("I1")
def test_an_id_tells_when_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made = int(fresh_hex()[:12], 16)
    assert before <= made <= time.time_ns() // 1_000_000


@pytest.mark.spec("I1")
def test_sorting_ids_sorts_them_by_time() -> None:
    minted = [mint("ses_") for _ in range(10_000)]
    assert minted == sorted(set(minted))


@pytest.mark.spec("I1")
def test_no_two_threads_make_the_same_id() -> None:
    made: list[list[str]] = []
    together = threading.Barrier(4)

    def make() -> None:
        together.wait()
        made.append([fresh_hex() for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for batch in made for each in batch}) == 8000
    assert all(batch == sorted(batch) for batch in made)

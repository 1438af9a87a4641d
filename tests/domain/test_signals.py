"""When a process may be signalled, and what it comes to when it may not (K1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.process import Alive, Gone, Unverified
from murmur.domain.signals import AlreadyGone, Refused, refusal_before_signal


@pytest.mark.spec("K1")
def test_a_verified_process_may_be_signalled() -> None:
    assert refusal_before_signal(Alive()) is None
    assert refusal_before_signal(Alive(7)) is None


@pytest.mark.spec("K1")
@given(st.text())
def test_a_process_that_is_gone_is_not_signalled(reason: str) -> None:
    assert refusal_before_signal(Gone(reason)) == AlreadyGone()


@pytest.mark.spec("K1", "L9")
@given(st.text())
def test_a_process_that_could_not_be_verified_is_refused_for_the_same_reason(reason: str) -> None:
    assert refusal_before_signal(Unverified(reason)) == Refused(reason)

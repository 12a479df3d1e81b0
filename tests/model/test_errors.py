"""The table of errors is total and reversible."""

from __future__ import annotations

import grpc
import pytest

from kcache_grpc import errors

PUBLIC = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.KcacheError)
]


def test_every_public_class_has_a_row_and_every_row_a_class() -> None:
    assert set(PUBLIC) == set(errors.WIRE_FORMS)


def test_reasons_are_unique_and_codes_exist() -> None:
    forms = list(errors.WIRE_FORMS.values())
    assert len({form.reason for form in forms}) == len(forms)
    assert not {form.reason for form in forms} & set(errors.EXTRA_REASONS)
    assert {form.code for form in forms} <= {code.name for code in grpc.StatusCode}


@pytest.mark.parametrize("cls", PUBLIC)
def test_an_error_survives_the_wire(cls: type[errors.KcacheError]) -> None:
    sent = cls("what happened", op="stablehlo.fft", stage="lower", diagnostic="no")
    received = errors.from_reason(sent.reason, sent.message, sent.metadata)
    assert type(received) is cls
    assert (received.message, received.metadata) == (sent.message, sent.metadata)
    assert received.retryable is errors.WIRE_FORMS[cls].retryable


def test_transport_errors_without_details_are_all_known() -> None:
    assert set(errors.TRANSPORT_CODES) == {code.name for code in grpc.StatusCode} - {"OK"}


def test_a_reason_from_the_future_is_still_an_error_of_kcache() -> None:
    assert type(errors.from_reason("NOT_YET_KNOWN", "m", {})) is errors.KcacheError
    assert isinstance(errors.from_reason("PROGRAM_REQUIRED", "m", {}), errors.NotFound)
    assert type(errors.from_transport("NOT_A_CODE", "m")) is errors.KcacheError


def test_subclasses_travel_as_their_nearest_public_class() -> None:
    class Special(errors.NotFound):
        pass

    assert Special("x").reason == "NOT_FOUND"

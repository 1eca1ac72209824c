"""The numbers with which the rules refuse are those of the protocol's table of errors."""

from semel.wire import refusals
from semel.wire.errors import ErrorCode


def test_each_code_of_a_refusal_has_its_number_in_the_protocol() -> None:
    codes = {name: number for name, number in vars(refusals).items() if name.isupper()}
    assert {name: ErrorCode[name].value for name in codes} == codes
    assert len(codes) > 40
    assert ErrorCode.UNACCEPTABLE_CREDENTIAL == 93

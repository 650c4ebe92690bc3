"""What a lock service answers, as its clients read it: an outcome, or an error of the package."""

from functools import partial

from leased.clocks import BlockingClock
from leased.errors import LeasedError
from leased.model import Abandon, Acquire, Claim, Held, Look, Release, Renew
from leased.stores._http_answers import from_service, understand
from leased.stores._http_url import Address, read_address
from leased.stores._http_wire import Answer
from leased.targets import Options
from leased.wire import read_assurance, read_forced, read_outcome, read_status
from leased.wire_batch import read_outcomes, read_page
from leased.wire_errors import read_error

_ADDRESS: Address = read_address("http://127.0.0.1:1", Options(clock=BlockingClock()))
_OPERATIONS = (
    Acquire(Claim("k", "t" * 16, 1.0)), Renew("k", "t", 1.0, 1), Look("k", "t"), Release("k", "t"), Abandon("k", "t"),
)  # fmt: skip


def check(data: bytes) -> None:
    """Only errors of the package are raised; what is no plain yes of the service is no grant."""
    for status in (200, 302, 409, 429, 503):
        answer = Answer(status, data, keep=True)
        from_service(answer)
        for operation in _OPERATIONS:
            try:
                outcome = understand(answer, partial(read_outcome, operation), address=_ADDRESS)
            except LeasedError:
                continue
            assert status == 200
            if isinstance(outcome, Held):
                assert b"true" in data
                assert outcome.lease.left >= 0
        for read in (read_assurance, read_forced, read_page, read_status, partial(read_outcomes, _OPERATIONS)):
            try:
                understand(answer, read, address=_ADDRESS)
            except LeasedError:
                continue
        try:
            understand(answer, lambda body: read_error(body, status=200), address=_ADDRESS)
        except LeasedError:
            continue

"""What a caller without credentials may do."""

from typing import get_args

import pytest

from leased.server.principals import LOCAL, Action
from leased.server.rights import is_ruled, may


@pytest.mark.parametrize("action", get_args(Action))
def test_a_service_without_credentials_refuses_nothing(action: Action) -> None:
    """A5: where no credentials are asked for, whoever reaches the service may do everything, and no rule is asked."""
    assert may(LOCAL, action)
    assert not is_ruled(LOCAL, action)

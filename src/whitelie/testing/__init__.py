"""Tests that ship with whitelie, for those who write a part of it themselves.

`store_contract` holds a store of your own to the contract of every store. It needs pytest and
hypothesis (`pip install "whitelie[service,testing]"`); nothing else in whitelie imports either.
"""

import pytest

# Without this, a failed assertion in these modules would not show the values that it compared.
pytest.register_assert_rewrite("whitelie.testing.store_contract", "whitelie.testing.store_model")

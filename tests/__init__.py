"""The tests of evalcore."""

import pytest

# Before anything imports them: a failed assertion of theirs shows its values.
pytest.register_assert_rewrite("tests.support")

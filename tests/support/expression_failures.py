"""What an expression that cannot be computed raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from evalcore.expressions.engine import ExpressionError
from evalcore.expressions.template import compile_template


def failure_of(template: str, scope: Mapping[str, Any]) -> ExpressionError:
    """Return the error that rendering a template raises; fail the test if it raises none."""
    with pytest.raises(ExpressionError) as caught:
        compile_template(template).render(scope)
    return caught.value

"""What `${{ NAME }}` stands for in a request that a workflow makes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.settings import read_settings
from evalcore.trust.variables import suite_variables
from evalcore.workflow.failure import BlockError

if TYPE_CHECKING:
    from evalcore.workflow.services import EngineServices


def reference_value(
    match: re.Match[str], where: str, services: EngineServices, *, secret: bool = False
) -> str:
    """Return the value of the variable that a match of `REFERENCE` names.

    A secret, or a part of a URL, that is not set stays a reference: a recorded answer needs none.
    Raises `BlockError` for a variable that the workflow may not read, and for another one not set.
    """
    name = match[1]
    if services.of_service:
        readable = read_settings(os.environ, Path.cwd()).readable_names
        if name not in readable:
            message = f"{where}: may not read the environment variable {name}; name it in"
            raise BlockError("secret", f"{message} `readable_names` of the service's settings")
        value: str | None = os.environ.get(name, match[2])
    else:
        variables = suite_variables(services.folder)
        if not variables.may_read(name, secret=secret):
            message = f"{where}: may not read the environment variable {name}; name it in a .env"
            raise BlockError("secret", f"{message} file, or in `readable_names` of evalcore.toml")
        value = variables.value(name, match[2], secret=secret)
    if value is None and (secret or where == "url"):
        return match[0]  # it is told when it is sent
    if value is None:
        message = f"{where}: the environment variable {name} is not set"
        raise BlockError("secret", f"{message} in the process that runs the suite")
    return value

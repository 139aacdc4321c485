"""A suite on the command line: its name or its file."""

from __future__ import annotations

import os
from pathlib import Path


def suite_name(suite: str, store: str | None) -> str:
    """Return the name of a suite: the text itself, or what its file says.

    Secrets that the file refers to need not be set: no provider is asked.
    """
    path = Path(suite)
    try:
        is_file = path.is_file()
    except OSError:  # a name too long for a file
        is_file = False
    if not is_file:
        return suite
    from evalcore.cli.options import settings
    from evalcore.formats.options import LoadOptions
    from evalcore.formats.registry import load_suite

    options = LoadOptions(secrets_required=False).configured(settings(), os.environ, store)
    return load_suite(path, options).definition.name

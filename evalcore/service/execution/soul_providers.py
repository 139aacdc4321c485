"""The providers that souls of registered workflows name: entries of `targets.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalcore.formats.options import LoadOptions
from evalcore.formats.workflow_file import find_providers, named_providers
from evalcore.problems import Problems


def soul_providers(definition: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `{kind, options}` of the entries that souls name.

    A name that is no entry, or an entry with mistakes, is left out: its blocks fail and say so.
    """
    problems = Problems("targets", lambda _: None)
    names = dict(named_providers(definition, frozenset()))
    providers, _ = find_providers(names, Path.cwd(), LoadOptions(secrets_required=False), problems)
    return providers

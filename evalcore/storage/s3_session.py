"""Sessions of boto3 that read the descriptions of Amazon's services once in a process."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boto3.session import Session
    from botocore.loaders import Loader


def new_session() -> Session:
    """Return a session of its own: making clients from a shared one is not thread-safe.

    It reads the environment and the files of credentials anew; the descriptions of the services,
    which are most of what a client costs, are shared.
    """
    import boto3
    import botocore.session

    core = botocore.session.get_session()
    loader = _service_descriptions(core.get_config_variable("data_path"))
    core.register_component("data_loader", loader)
    paths = len(loader.search_paths)
    session = boto3.session.Session(botocore_session=core)
    # Each session adds the folder of boto3's resources, which no client reads.
    del loader.search_paths[paths:]
    return session


@lru_cache(maxsize=4)
def _service_descriptions(data_path: str | None) -> Loader:
    from botocore.loaders import create_loader

    return create_loader(data_path)

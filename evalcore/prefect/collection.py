"""What evalcore adds to Prefect: the block `EvalcoreStore` and the pull step `enter_folder`.

Prefect imports it, so it is light.
"""

from __future__ import annotations

import os
from pathlib import Path

from prefect.blocks.core import Block
from pydantic import Field, SecretStr


class EvalcoreStore(Block):
    """Where evalcore stores runs, and how to reach it; workers without it use their environment."""

    _block_type_name = "evalcore store"
    _block_type_slug = "evalcore-store"

    address: str = Field(
        description="A folder, or s3://bucket/prefix.", examples=["s3://bucket/runs"]
    )
    endpoint: str | None = Field(
        default=None, description="URL of an S3-compatible server; empty: AWS."
    )
    access_key_id: str | None = Field(default=None, description="Access key of the S3 server.")
    secret_access_key: SecretStr | None = Field(default=None, description="Its secret.")
    region: str | None = Field(default=None, description="Region of the bucket.")


# The fields of the block by the variables that they fill.
VARIABLES = {
    "EVALCORE_STORE": "address",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_REGION": "region",
}

NO_FOLDER = "EVALCORE_NO_FOLDER"
"""In the environment of a flow run whose worker lacks the deployment's folder: why it has none."""


def enter_folder(directory: str) -> dict[str, str]:
    """Enter the folder that a deployment names; the pull step of `evalcore deploy`.

    Without the folder the flow refuses (`parameters.this_worker`): of what a step raises, Prefect
    shows an exit code in the flow run's state, and nothing in its log.
    """
    try:
        os.chdir(directory)
    except OSError as error:
        os.environ[NO_FOLDER] = f"{directory}: {error.strerror}"
    return {"directory": str(Path.cwd())}

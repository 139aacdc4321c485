"""How deltalake reaches a bucket: the settings and credentials of the S3 store in its own words."""

from __future__ import annotations

from evalcore.storage.s3_session import new_session
from evalcore.storage.s3_settings import S3Settings


def delta_options(settings: S3Settings, region: str) -> dict[str, str]:
    """Return the storage options of deltalake, credentials included: never shown."""
    options = {
        "conditional_put": "etag",
        "AWS_REGION": region,
        "connect_timeout": f"{settings.connect_timeout_s:g}s",
        "timeout": f"{settings.read_timeout_s:g}s",
        "max_retries": str(4 * settings.max_attempts),
    }
    if endpoint := settings.endpoint_url:
        options["AWS_ENDPOINT_URL"] = endpoint
        options["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http:")).lower()
    if settings.encryption is not None:
        options["AWS_SERVER_SIDE_ENCRYPTION"] = settings.encryption
    if settings.kms_key_id is not None:
        options["AWS_SSE_KMS_KEY_ID"] = settings.kms_key_id
    style = settings.addressing_style
    if style is not None and style != "auto":
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(style == "virtual").lower()
    return options | _credentials()


def _credentials() -> dict[str, str]:
    """Return what boto3 signs with now, as deltalake takes it; nothing where there is none."""
    credentials = new_session().get_credentials()
    if credentials is None:
        return {}
    frozen = credentials.get_frozen_credentials()
    named = {
        "AWS_ACCESS_KEY_ID": frozen.access_key,
        "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
        "AWS_SESSION_TOKEN": frozen.token,
    }
    return {name: value for name, value in named.items() if value}

"""Object storage: one protocol, a local folder, and S3."""

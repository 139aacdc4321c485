"""The shapes of requests and responses, field by field as `docs/reference/service.md` has them."""

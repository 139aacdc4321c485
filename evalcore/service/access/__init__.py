"""Who may use the service: tokens with scopes, limits of rate and size, an audit log."""

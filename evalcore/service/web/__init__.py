"""The viewer's pages at `/ui` of the service: signed in by a token, of one project."""

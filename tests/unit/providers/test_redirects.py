"""Which redirects a plain request follows, and what goes along."""

from __future__ import annotations

import pytest

from evalcore.providers.transport import Sent, redirected

HEADERS = {"X-Team": "a", "Content-Type": "text/plain"}


def _get(url: str, *, follow: bool = True) -> Sent:
    return Sent("GET", url, HEADERS, None, follow)


@pytest.mark.parametrize(
    ("url", "location", "goes_on_with"),
    [
        ("http://a.example/x", "/y", HEADERS),
        ("http://a.example/x", "http://a.example:80/y", HEADERS),
        ("http://a.example/x", "https://a.example/y", HEADERS),
        ("https://a.example/x", "http://a.example/y", {}),
        ("http://a.example/x", "http://a.example:81/y", {}),
        ("http://a.example/x", "http://b.example/x", {}),
        ("http://a.example/x", "//b.example/x", {}),
        ("http://a.example/x", "http://u:p@a.example/x", None),
        ("http://u:p@a.example/x", "http://b.example/x", None),
        ("http://a.example/x", "file:///etc/passwd", None),
        ("http://a.example/x", None, None),
    ],
)
def test_headers_stay_at_the_host_they_were_written_for(
    url: str, location: str | None, goes_on_with: dict[str, str] | None
) -> None:
    onward = redirected(_get(url), 302, location)
    assert (None if onward is None else dict(onward.headers)) == goes_on_with


def test_a_request_with_credentials_follows_nothing() -> None:
    assert redirected(_get("http://a.example/x", follow=False), 302, "/y") is None


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_goes_to_no_other_host(status: int) -> None:
    sent = Sent("POST", "http://a.example/x", HEADERS, b"body", True)
    assert redirected(sent, status, "http://b.example/x") is None
    assert redirected(sent, status, "/y") == sent._replace(url="http://a.example/y")


def test_a_post_that_was_answered_is_fetched_without_its_body() -> None:
    sent = Sent("POST", "http://a.example/x", HEADERS, b"body", True)
    assert redirected(sent, 303, "/y") == Sent(
        "GET", "http://a.example/y", {"X-Team": "a"}, None, True
    )
    onward = redirected(sent, 303, "http://b.example/y")
    assert onward == Sent("GET", "http://b.example/y", {}, None, True)

"""What pages look at stays open as long as there is room, and no page uses what is closed."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from evalcore.viewer.shelf import Shelf


@dataclass
class Opened:
    """A value that can be closed."""

    name: str
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


def test_the_value_used_longest_ago_makes_room_and_is_closed() -> None:
    shelf = Shelf[Opened](2, close=Opened.close)
    values = {}
    for name in ("a", "b", "a", "c"):
        with shelf.use(name, lambda name=name: Opened(name)) as value:  # type: ignore[misc]
            values[name] = value
    assert {name: value.is_closed for name, value in values.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }


def test_threads_that_displace_each_others_values_never_use_a_closed_one() -> None:
    shelf = Shelf[Opened](1, close=Opened.close)
    seen: list[bool] = []

    def look(name: str) -> None:
        for _ in range(50):
            with shelf.use(name, lambda: Opened(name)) as value:
                seen.append(value.is_closed)

    threads = [threading.Thread(target=look, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [False] * 150

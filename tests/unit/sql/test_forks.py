"""The database of a process and forks of it."""

from __future__ import annotations

import os
import threading

from evalcore.sql.connection import connect, use_threads_for


def test_a_fork_has_a_database_of_its_own_and_leaves_its_parents_threads_alone() -> None:
    use_threads_for(1_000_000)
    try:
        pid = os.fork()
        if pid == 0:
            _query_in_a_thread()
        _, status = os.waitpid(pid, 0)
    finally:
        use_threads_for(0)

    assert os.waitstatus_to_exitcode(status) == 0


def _query_in_a_thread() -> None:
    # A thread of a fork, as the one that writes a shard, has the stack of a parent's thread.
    rows: list[tuple[int]] = []
    thread = threading.Thread(target=lambda: rows.extend(connect().execute("SELECT 1").fetchall()))
    thread.start()
    thread.join()
    os._exit(0 if rows == [(1,)] else 2)

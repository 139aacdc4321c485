"""How the processes that execute one run share its shards: claims, leases, crashes."""

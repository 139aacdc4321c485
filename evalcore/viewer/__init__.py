"""The viewer: pages over the runs of a store, for `evalcore view` and the service's `/ui`."""

"""LOAD: foreign text becomes a `Suite`; one file per format."""

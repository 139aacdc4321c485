"""The nouns of the engine: frozen values without I/O."""

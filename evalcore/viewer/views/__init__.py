"""What the pages show, read from the store: cases, calls, texts, trends."""

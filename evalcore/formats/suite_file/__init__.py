"""Suite files: cases × variants."""

"""The history of a store: every ended run as rows of four Delta tables, asked through DuckDB."""

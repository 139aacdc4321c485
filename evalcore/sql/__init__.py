"""DuckDB: the connection, rows → Parquet, tables → cases."""

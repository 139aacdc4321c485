"""AGGREGATE: the run's Parquet parts through named SQL queries; nothing is added up in Python."""

"""The migrations of the service's database, applied in order by Alembic."""

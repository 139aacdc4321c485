"""The service's database: its tables, its migrations, its sessions."""

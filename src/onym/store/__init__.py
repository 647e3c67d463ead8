"""Opening databases: SQLite by default, PostgreSQL and Valkey for fleets."""

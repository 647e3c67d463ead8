"""The JSON API: what it takes and gives, and its operations."""

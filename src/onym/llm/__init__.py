"""Placeholder, written by the room's owner."""

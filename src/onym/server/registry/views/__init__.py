"""Handlers, by what they are for."""

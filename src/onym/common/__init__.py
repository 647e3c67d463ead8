"""Helpers for every part of Onym: durable files, locks, strict JSON, printable text and settings."""

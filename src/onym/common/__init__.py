"""What every part of Onym needs and no user sees: durable files, locks, strict JSON, printable text, settings."""

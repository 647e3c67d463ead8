"""What an idempotency key belongs to, and the tables that it is kept in (3.11)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["ANONYMOUS", "EVERYBODY", "SCHEMA", "Scope", "Stored"]

#: what the clients begin with that nobody vouches for
ANONYMOUS: Final = "anonymous "
#: whose octets those of all callers are counted as; no client has this name
EVERYBODY: Final = ""
_KEYS: Final = """
CREATE TABLE IF NOT EXISTS owners (id TEXT PRIMARY KEY, gone INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE IF NOT EXISTS keys (
    client TEXT NOT NULL, principal TEXT NOT NULL, target TEXT NOT NULL, key TEXT NOT NULL,
    fingerprint TEXT NOT NULL, created REAL NOT NULL, owner TEXT NOT NULL, answer BLOB,
    PRIMARY KEY (client, principal, target, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_created ON keys (created);
CREATE INDEX IF NOT EXISTS keys_client ON keys (client, created);
"""
#: octets of answers by client, kept in step with the keys: to sum them up would be to read them all
_COUNTING: Final = """
CREATE TABLE IF NOT EXISTS kept (client TEXT PRIMARY KEY, octets INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS kept_more AFTER UPDATE OF answer ON keys
WHEN old.answer IS NULL AND new.answer IS NOT NULL BEGIN
    INSERT INTO kept VALUES (new.client, length(new.answer)), ('', length(new.answer))
        ON CONFLICT (client) DO UPDATE SET octets = octets + excluded.octets;
END;
CREATE TRIGGER IF NOT EXISTS kept_less AFTER DELETE ON keys
WHEN old.answer IS NOT NULL BEGIN
    UPDATE kept SET octets = octets - length(old.answer) WHERE client IN (old.client, '');
    DELETE FROM kept WHERE client = old.client AND octets <= 0;
END;
INSERT INTO kept SELECT client, sum(length(answer)) FROM keys
    WHERE answer IS NOT NULL AND NOT EXISTS (SELECT 1 FROM kept WHERE client = '') GROUP BY client;
INSERT OR IGNORE INTO kept SELECT '', coalesce(sum(octets), 0) FROM kept;
"""
#: run once by each process that opens the file
SCHEMA: Final = f"BEGIN IMMEDIATE; {_KEYS} {_COUNTING} COMMIT;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a key belongs to. `client` and `principal` say who; `target` has no query.

    A client that begins with `ANONYMOUS` is one that showed no token.
    """

    client: str
    principal: str
    target: str
    key: str = field(repr=False)

    @property
    def is_anonymous(self) -> bool:
        """Is the client one that nobody vouches for?"""
        return self.client.startswith(ANONYMOUS)

    @property
    def clients(self) -> tuple[str, str]:
        """The first and the last of those that share one allowance: all who showed no token do."""
        return (ANONYMOUS, ANONYMOUS + "\U0010ffff") if self.is_anonymous else (self.client, self.client)

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The primary key."""
        return self.client, self.principal, self.target, self.key


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a key: `answer` is what to give again, None where the side effect is now to begin."""

    answer: bytes | None

"""The revisions of the schema, oldest first. A revision that was released is never edited."""

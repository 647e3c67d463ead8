"""IANA's formats: reading published registries of every vintage, writing ours, and what changed between two.

    snapshot = builtin("uri-schemes")                       # facts that Onym ships
    snapshot = read(data, source="uri-schemes-1.csv")       # CSV, XML, JSON or text, found by itself
    text = write(snapshot.entries, format="xml", registry="uri-schemes", updated=date(2026, 11, 21))
    changes = differences(before, after)

Irregular rows are kept and reported (`Snapshot.irregular`); what no row can be made of stops the import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import lazily

if TYPE_CHECKING:
    from onym.registry.iana._atom import atom
    from onym.registry.iana._builtin import builtin
    from onym.registry.iana._differences import change, differences, logged
    from onym.registry.iana._facts import RFC, known_rfcs
    from onym.registry.iana._import import as_imported, filled
    from onym.registry.iana._join import combine, with_numbers
    from onym.registry.iana._namespaces import (
        Namespace,
        NamespaceFile,
        check_namespace_fields,
        read_namespaces,
        write_namespaces,
    )
    from onym.registry.iana._read import READ_FORMATS, read
    from onym.registry.iana._tables import write_table
    from onym.registry.iana._types import MAX_BYTES, Change, ChangeKind, Irregular, Snapshot
    from onym.registry.iana._write import WRITE_FORMATS, write

# what a caller does not use is not loaded: an entry of the shipped snapshot needs neither CSV nor XML
_HOME = {
    "MAX_BYTES": "onym.registry.iana._types",
    "READ_FORMATS": "onym.registry.iana._read",
    "RFC": "onym.registry.iana._facts",
    "WRITE_FORMATS": "onym.registry.iana._write",
    "Change": "onym.registry.iana._types",
    "ChangeKind": "onym.registry.iana._types",
    "Irregular": "onym.registry.iana._types",
    "Namespace": "onym.registry.iana._namespaces",
    "NamespaceFile": "onym.registry.iana._namespaces",
    "Snapshot": "onym.registry.iana._types",
    "as_imported": "onym.registry.iana._import",
    "atom": "onym.registry.iana._atom",
    "builtin": "onym.registry.iana._builtin",
    "change": "onym.registry.iana._differences",
    "check_namespace_fields": "onym.registry.iana._namespaces",
    "combine": "onym.registry.iana._join",
    "differences": "onym.registry.iana._differences",
    "filled": "onym.registry.iana._import",
    "known_rfcs": "onym.registry.iana._facts",
    "logged": "onym.registry.iana._differences",
    "read": "onym.registry.iana._read",
    "read_namespaces": "onym.registry.iana._namespaces",
    "with_numbers": "onym.registry.iana._join",
    "write": "onym.registry.iana._write",
    "write_namespaces": "onym.registry.iana._namespaces",
    "write_table": "onym.registry.iana._tables",
}

__getattr__ = lazily(__name__, _HOME)

__all__ = [
    "MAX_BYTES",
    "READ_FORMATS",
    "RFC",
    "WRITE_FORMATS",
    "Change",
    "ChangeKind",
    "Irregular",
    "Namespace",
    "NamespaceFile",
    "Snapshot",
    "as_imported",
    "atom",
    "builtin",
    "change",
    "check_namespace_fields",
    "combine",
    "differences",
    "filled",
    "known_rfcs",
    "logged",
    "read",
    "read_namespaces",
    "with_numbers",
    "write",
    "write_namespaces",
    "write_table",
]

"""IANA's formats: read published registries of every vintage, write ours, and compare two of them.

    snapshot = load_builtin_snapshot("uri-schemes")              # facts that Onym ships
    snapshot = read_snapshot(data, source="uri-schemes-1.csv")   # detects CSV, XML, JSON or text
    text = write_entries(snapshot.entries, format="xml", registry="uri-schemes", updated=date(2026, 11, 21))
    changes = compare_snapshots(before, after)

Irregular rows are kept and reported (`Snapshot.irregular`). A row that cannot become an entry stops the
import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.registry.iana.changes import (
        compare_entries,
        compare_logged_entries,
        compare_snapshots,
        format_atom_feed,
    )
    from onym.registry.iana.formats import (
        READ_FORMATS,
        WRITE_FORMATS,
        read_snapshot,
        write_entries,
        write_table,
    )
    from onym.registry.iana.merge import (
        add_cri_numbers,
        combine_snapshots,
        fill_missing_columns,
        prepare_import,
    )
    from onym.registry.iana.namespaces import (
        Namespace,
        NamespaceFile,
        check_namespace_fields,
        read_namespaces,
        write_namespaces,
    )
    from onym.registry.iana.snapshots import (
        MAX_BYTES,
        RFC,
        Change,
        ChangeKind,
        Irregular,
        Snapshot,
        load_builtin_snapshot,
        load_known_rfcs,
    )

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
    "add_cri_numbers",
    "check_namespace_fields",
    "combine_snapshots",
    "compare_entries",
    "compare_logged_entries",
    "compare_snapshots",
    "fill_missing_columns",
    "format_atom_feed",
    "load_builtin_snapshot",
    "load_known_rfcs",
    "prepare_import",
    "read_namespaces",
    "read_snapshot",
    "write_entries",
    "write_namespaces",
    "write_table",
]

# what a caller does not use is not loaded: an entry of the shipped snapshot needs neither CSV nor XML
_HOME = {
    "MAX_BYTES": "onym.registry.iana.snapshots",
    "READ_FORMATS": "onym.registry.iana.formats",
    "RFC": "onym.registry.iana.snapshots",
    "WRITE_FORMATS": "onym.registry.iana.formats",
    "Change": "onym.registry.iana.snapshots",
    "ChangeKind": "onym.registry.iana.snapshots",
    "Irregular": "onym.registry.iana.snapshots",
    "Namespace": "onym.registry.iana.namespaces",
    "NamespaceFile": "onym.registry.iana.namespaces",
    "Snapshot": "onym.registry.iana.snapshots",
    "prepare_import": "onym.registry.iana.merge",
    "format_atom_feed": "onym.registry.iana.changes",
    "load_builtin_snapshot": "onym.registry.iana.snapshots",
    "compare_entries": "onym.registry.iana.changes",
    "check_namespace_fields": "onym.registry.iana.namespaces",
    "combine_snapshots": "onym.registry.iana.merge",
    "compare_snapshots": "onym.registry.iana.changes",
    "fill_missing_columns": "onym.registry.iana.merge",
    "load_known_rfcs": "onym.registry.iana.snapshots",
    "compare_logged_entries": "onym.registry.iana.changes",
    "read_snapshot": "onym.registry.iana.formats",
    "read_namespaces": "onym.registry.iana.namespaces",
    "add_cri_numbers": "onym.registry.iana.merge",
    "write_entries": "onym.registry.iana.formats",
    "write_namespaces": "onym.registry.iana.namespaces",
    "write_table": "onym.registry.iana.formats",
}

__getattr__ = make_lazy_getattr(__name__, _HOME)

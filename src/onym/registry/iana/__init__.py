"""Registry files: read published registries of every format, write them, and compare two of them.

    snapshot = load_builtin_snapshot("uri-schemes")              # facts that Onym ships
    snapshot = read_snapshot(data, source="uri-schemes-1.csv")   # detects CSV, XML, JSON or text
    text = write_entries(snapshot.entries, format="xml", registry="uri-schemes", updated=date(2026, 11, 21))
    changes = compare_snapshots(before, after)

Irregular rows are kept and reported (`Snapshot.irregular`). A row that cannot become an entry stops the
import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_names

if TYPE_CHECKING:
    from onym.registry.iana.changes import combine_snapshots as combine_snapshots
    from onym.registry.iana.changes import compare_entries as compare_entries
    from onym.registry.iana.changes import compare_logged_entries as compare_logged_entries
    from onym.registry.iana.changes import compare_snapshots as compare_snapshots
    from onym.registry.iana.changes import fill_missing_columns as fill_missing_columns
    from onym.registry.iana.changes import format_atom_feed as format_atom_feed
    from onym.registry.iana.changes import prepare_import as prepare_import
    from onym.registry.iana.formats import READ_FORMATS as READ_FORMATS
    from onym.registry.iana.formats import WRITE_FORMATS as WRITE_FORMATS
    from onym.registry.iana.formats import add_cri_numbers as add_cri_numbers
    from onym.registry.iana.formats import read_snapshot as read_snapshot
    from onym.registry.iana.formats import write_entries as write_entries
    from onym.registry.iana.formats import write_table as write_table
    from onym.registry.iana.namespaces import Namespace as Namespace
    from onym.registry.iana.namespaces import NamespaceFile as NamespaceFile
    from onym.registry.iana.namespaces import check_namespace_fields as check_namespace_fields
    from onym.registry.iana.namespaces import read_namespaces as read_namespaces
    from onym.registry.iana.namespaces import write_namespaces as write_namespaces
    from onym.registry.iana.snapshots import MAX_BYTES as MAX_BYTES
    from onym.registry.iana.snapshots import RFC as RFC
    from onym.registry.iana.snapshots import Change as Change
    from onym.registry.iana.snapshots import ChangeKind as ChangeKind
    from onym.registry.iana.snapshots import Irregular as Irregular
    from onym.registry.iana.snapshots import Snapshot as Snapshot
    from onym.registry.iana.snapshots import load_builtin_snapshot as load_builtin_snapshot
    from onym.registry.iana.snapshots import load_known_rfcs as load_known_rfcs

# unused parts are not loaded: an entry of the shipped snapshot needs neither CSV nor XML
_HOMES = {
    "onym.registry.iana.changes": (
        "combine_snapshots compare_entries compare_logged_entries compare_snapshots fill_missing_columns "
        "format_atom_feed prepare_import"
    ),
    "onym.registry.iana.formats": (
        "READ_FORMATS WRITE_FORMATS add_cri_numbers read_snapshot write_entries write_table"
    ),
    "onym.registry.iana.namespaces": (
        "Namespace NamespaceFile check_namespace_fields read_namespaces write_namespaces"
    ),
    "onym.registry.iana.snapshots": (
        "MAX_BYTES RFC Change ChangeKind Irregular Snapshot load_builtin_snapshot load_known_rfcs"
    ),
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)

"""What `pygsage info` says of a store of many graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def describe_store(folder: Path, verify: bool) -> dict[str, Any]:
    """What a store of many graphs holds, as plain values; with `verify` every byte is read.

    Raises:
        DatasetError: when it is damaged or another's.
    """
    from pygsage.data.store.column_store import open_manifest
    from pygsage.data.store.database import open_database
    from pygsage.data.store.schema import label

    manifest = open_manifest(folder)
    database = open_database(folder)
    try:
        if verify:
            database.verify()
        columns = [
            {
                "name": label(c.group, c.key),
                "role": c.role,
                "dtype": c.dtype,
                "shape": list(c.shape),
                "joined": c.cat_dim,
            }
            for c in database.graph_schema.columns
        ]
        return {
            "kind": "store",
            "folder": str(folder),
            "backend": manifest["backend"],
            "num_graphs": len(database),
            "num_bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            "attributes": columns,
            "notes": list(manifest["notes"]),
            "verified": verify,
        }
    finally:
        database.close()


def store_text(answer: dict[str, Any]) -> str:
    """A store's description for people."""
    lines = [
        f"store        {answer['folder']} ({answer['backend']})",
        f"graphs       {answer['num_graphs']:,}",
        f"size         {size_text(answer['num_bytes'])}",
        "attributes   (the shape of one row; rows of all graphs are joined)",
    ]
    for column in answer["attributes"]:
        shape = " x ".join(map(str, column["shape"])) or "one number"
        lines.append(f"  {column['name']:<20} {column['role']:<6} {column['dtype']:<9} {shape}")
    lines += [f"note: {note}" for note in answer["notes"]]
    if answer["verified"]:
        lines.append("verified     every byte is as it was written")
    return "\n".join(lines)


def size_text(num_bytes: int) -> str:
    """`1.5 GiB`: with one digit, for tables."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} B"

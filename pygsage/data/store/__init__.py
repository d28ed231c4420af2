"""The store of many graphs: columns on disk or in memory, PyG's datasets over them, and how they are made."""

//! Snapshot files: what `plan` reads and `snapshot` writes.

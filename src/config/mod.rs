//! The configuration: TOML as written (with spans) → checked settings. One file a table.

//! Snapshot → plan, with reasons. Pure: same input, same plan, byte for byte.

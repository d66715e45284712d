//! Logs, status, systemd.

//! The embedded APIs over TLS on loopback, for real clients.

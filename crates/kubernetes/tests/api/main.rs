//! Tests the Kubernetes client against an API server that answers from a script. The responses have the same
//! form as recorded ones.

#![expect(clippy::unwrap_used, reason = "a panic in a test helper fails the test")]

mod buffers;
mod calls;
mod captured;
mod connect;
mod fake;
mod fence;
mod gangs;
mod lease;
mod rights;
mod tokens;
mod watches;

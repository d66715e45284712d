//! Tests the Kubernetes client against an API server that answers from a script. The responses have the same
//! form as recorded ones.

#![expect(clippy::unwrap_used, reason = "a test helper may panic if the test has failed")]

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

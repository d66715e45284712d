//! Reads files on this machine: the configuration, and the secrets that it names.

mod configuration;
mod secret;

pub use configuration::load;
pub use secret::{ReadSecret, SecretError};

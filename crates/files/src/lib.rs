//! Reads local files: the configuration, and the secrets that the configuration refers to.

mod configuration;
mod secret;

pub use configuration::load;
pub use secret::{ReadSecret, SecretError};

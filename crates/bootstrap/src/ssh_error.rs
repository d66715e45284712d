//! Errors that occur when a control plane node creates or deletes bootstrap tokens over SSH.

use std::time::Duration;

use thiserror::Error;

use files::SecretError;

/// The reason why a control plane node did not carry out a request over SSH. The messages contain no secrets.
#[derive(Debug, Error)]
pub enum SshError {
    /// The private key cannot be read.
    #[error("the SSH private key cannot be read")]
    Secret(#[source] SecretError),
    /// The private key cannot be used.
    #[error("the SSH private key {0}")]
    Key(KeyFault),
    /// `ssh_host_key` cannot be used.
    #[error(
        "`ssh_host_key` {0}: set it to the host's Ed25519 or ECDSA key, in the format that `ssh-keyscan \
            -t ed25519,ecdsa HOST` prints"
    )]
    HostKeySetting(String),
    /// The host cannot be reached.
    #[error("{address} cannot be reached over SSH")]
    Unreachable {
        /// `host:port`.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another server answered, or the host's keys were replaced.
    #[error(
        "{address} has an unexpected host key: the key is {seen}, but `ssh_host_key` is {expected}. If \
            the host's keys were replaced, and `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on \
            the host itself confirms that, copy the new key from the output of `{scan}` into \
            `ssh_host_key`, without the host name"
    )]
    HostKey {
        /// `host:port`.
        address: String,
        /// The kind and fingerprint of the host's key, or a description of what the server presented instead.
        seen: String,
        /// The kind and fingerprint of the configured key.
        expected: String,
        /// The command that shows the host's keys.
        scan: String,
    },
    /// The host does not accept the daemon's key.
    #[error(
        "`{user}` cannot log in to {address} with the key {key}: add its public half to \
            `~{user}/.ssh/authorized_keys` on that host"
    )]
    Refused {
        /// `host:port`.
        address: String,
        /// The user that the daemon tried to log in as.
        user: String,
        /// The fingerprint of the daemon's key.
        key: String,
    },
    /// The command failed.
    #[error("`{command}` on {address} {end}{}{stderr}", if stderr.is_empty() { "" } else { ": " })]
    Command {
        /// The command.
        command: String,
        /// `host:port`.
        address: String,
        /// How it ended.
        end: CommandEnd,
        /// The last lines of the command's standard error, without tokens.
        stderr: String,
    },
    /// The command's output is not as expected.
    #[error("`{command}` on {address} printed {what}")]
    Answer {
        /// The command.
        command: String,
        /// `host:port`.
        address: String,
        /// What is wrong with the output. The output itself is left out.
        what: &'static str,
    },
    /// The connection broke.
    #[error("the SSH connection to {address} broke")]
    Broken {
        /// `host:port`.
        address: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The time limit was exceeded. The request may have been carried out nevertheless.
    #[error("the SSH request to {address} did not finish within {} s", limit.as_secs_f64())]
    Limit {
        /// `host:port`.
        address: String,
        /// The limit.
        limit: Duration,
    },
    /// The token id is invalid. It is not shown, because it may be a complete token.
    #[error("this is not a bootstrap token id: an id has six lowercase letters or digits")]
    NoId,
}

impl SshError {
    /// Whether the error may be temporary, for example because the host is restarting or busy, or because its
    /// API server is unavailable.
    pub fn passes(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::Limit { .. } => true,
            // These errors are permanent: `sudo` needs a password, or the shell cannot find or run the
            // program (POSIX: 126, 127).
            Self::Command { end, stderr, .. } => {
                !stderr.starts_with("sudo:")
                    && !matches!(end, CommandEnd::Exit(126 | 127) | CommandEnd::Denied)
            }
            Self::Secret(_)
            | Self::Key(_)
            | Self::HostKeySetting(_)
            | Self::HostKey { .. }
            | Self::Refused { .. }
            | Self::Answer { .. }
            | Self::NoId => false,
        }
    }
}

/// How a command on another host ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandEnd {
    /// The command exited with this status.
    #[error("exited with {0}")]
    Exit(u32),
    /// A signal ended the command.
    #[error("was terminated by signal {0}")]
    Signal(String),
    /// The SSH server did not start the command.
    #[error("was rejected by the SSH server")]
    Denied,
    /// The connection ended before the command did.
    #[error("ended without a status")]
    Unknown,
}

/// What is wrong with a private key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyFault {
    /// The key has a passphrase, which the daemon cannot enter.
    #[error(
        "has a passphrase, which the daemon cannot enter: create a separate key with `ssh-keygen -t \
            ed25519 -N ''`"
    )]
    Encrypted,
    /// The key is neither Ed25519 nor ECDSA.
    #[error("is of type {0}, not Ed25519 or ECDSA: create a key with `ssh-keygen -t ed25519 -N ''`")]
    Kind(String),
    /// The key is in an older format.
    #[error("is not in OpenSSH's own format: convert it with `ssh-keygen -p -N '' -f FILE`")]
    Format,
    /// The text is a public key, not a private key.
    #[error("is a public key: name the file without `.pub`")]
    Public,
    /// The text is not a key, or the key is damaged.
    #[error("is not a key, or is damaged: create a key with `ssh-keygen -t ed25519 -N ''`")]
    Unreadable,
}

//! Creates bootstrap tokens with `kubeadm token` on a control plane node, over SSH.
//!
//! * The daemon only talks to a host with the configured key, and only offers its own key: no password, no
//!   agent, no forwarding.
//! * kubeadm creates the token and prints it on standard output, so tokens never appear on a command line.
//! * Each operation has a limit for its total time and one for its output. The connection is closed when the
//!   operation ends.

use std::sync::Arc;
use std::time::Duration;

use runtime::boxed;
use russh::client::{self, AuthResult};
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelMsg, Disconnect, Preferred};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::masking::{is_token_id, last_lines, token_id};
use super::ssh_error::{CommandEnd, KeyFault, SshError};
use super::ssh_keys::{KINDS, described, host_key, private_key};
use files::ReadSecret;
use settings::Ssh;

/// The maximum number of open connections. If ten or more connections have not logged in yet, sshd randomly
/// drops new ones (`MaxStartups 10:30:100`).
static AT_ONCE: Semaphore = Semaphore::const_new(4);
/// The maximum number of bytes that a command may print to each of standard output and standard error.
const MOST_OUTPUT: usize = 64 * 1024;
/// The group to which kubeadm grants the rights to join.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// A token that kubeadm has created.
#[derive(Clone, Debug)]
pub struct SshToken {
    /// The token's public part.
    pub id: String,
    /// `id.secret`.
    pub token: SecretString,
}

/// A control plane node that creates and deletes bootstrap tokens.
#[derive(Clone, Debug)]
pub struct TokenHost {
    settings: Ssh,
    limit: Duration,
}

/// The output of a command.
struct Printed {
    stdout: SecretSlice<u8>,
    stderr: String,
    end: CommandEnd,
}

impl TokenHost {
    /// A client for the host in the settings. Each operation takes at most `limit`, including the wait for
    /// its turn.
    pub fn new(settings: Ssh, limit: Duration) -> Self {
        Self { settings, limit }
    }

    /// Makes kubeadm create a token for authentication and signing, valid for `ttl`. The description should
    /// name the machine.
    ///
    /// # Errors
    /// Returns an [`SshError`]. After a timeout or a broken connection, there may be a token whose secret the
    /// daemon has not received. Such a token expires by itself.
    #[boxed]
    pub async fn mint(&self, ttl: Duration, description: &str) -> Result<SshToken, SshError> {
        // For kubeadm, 0 means that the token never expires.
        let ttl = format!("{}s", ttl.as_secs().max(1));
        let words = [
            "token",
            "create",
            "--ttl",
            &ttl,
            "--usages",
            "authentication,signing",
            "--groups",
            GROUP,
            "--description",
            description,
        ];
        let command = self.command(&words);
        let printed = self.run(&command).await?;
        self.succeeded("kubeadm token create", &printed)?;
        let wrong = |what| SshError::Answer {
            command: "kubeadm token create".to_owned(),
            address: self.address(),
            what,
        };
        let text = std::str::from_utf8(printed.stdout.expose_secret())
            .map_err(|_| wrong("output that is not UTF-8 text"))?;
        // A shell's start-up files may print additional lines.
        let mut tokens = text.lines().map(str::trim).filter_map(|line| Some((token_id(line)?, line)));
        match (tokens.next(), tokens.next()) {
            (Some((id, token)), None) => Ok(SshToken { id: id.to_owned(), token: token.into() }),
            (None, _) => Err(wrong("no token")),
            (Some(_), Some(_)) => Err(wrong("more than one token")),
        }
    }

    /// Makes kubeadm delete a token. It is not an error if the token does not exist.
    ///
    /// # Errors
    /// See [`SshError`].
    #[boxed]
    pub async fn delete(&self, id: &str) -> Result<(), SshError> {
        if !is_token_id(id) {
            return Err(SshError::NoId);
        }
        let printed = self.run(&self.command(&["token", "delete", id])).await?;
        // The API server's message is: secrets "bootstrap-token-abcdef" not found.
        if printed.stderr.contains(&format!("\"bootstrap-token-{id}\" not found")) {
            return Ok(());
        }
        self.succeeded("kubeadm token delete", &printed)
    }

    /// Tests whether a token can be created. Uses kubeadm's dry run, which changes nothing in the cluster.
    ///
    /// # Errors
    /// See [`SshError`].
    #[boxed]
    pub async fn rehearse(&self) -> Result<(), SshError> {
        // The dry run prints a token but does not create it.
        let printed = self.run(&self.command(&["token", "create", "--ttl", "1s", "--dry-run"])).await?;
        self.succeeded("kubeadm token create --dry-run", &printed)
    }

    /// The host's address as `host:port`.
    pub fn address(&self) -> String {
        let Ssh { host, port, .. } = &self.settings;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// A command line for kubeadm, quoted for any shell. If the user is not root, the command runs through
    /// `sudo`, for which the host needs a sudo rule.
    fn command(&self, words: &[&str]) -> String {
        let sudo: &[&str] = if self.settings.user == "root" { &[] } else { &["sudo", "-n"] };
        let words = sudo.iter().chain(&["kubeadm"]).chain(words);
        words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    fn succeeded(&self, command: &str, printed: &Printed) -> Result<(), SshError> {
        match &printed.end {
            CommandEnd::Exit(0) => Ok(()),
            end => Err(SshError::Command {
                command: command.to_owned(),
                address: self.address(),
                end: end.clone(),
                stderr: last_lines(&printed.stderr),
            }),
        }
    }

    async fn run(&self, command: &str) -> Result<Printed, SshError> {
        let over = |_| SshError::Limit { address: self.address(), limit: self.limit };
        tokio::time::timeout(self.limit, self.run_once(command)).await.map_err(over)?
    }

    async fn run_once(&self, command: &str) -> Result<Printed, SshError> {
        // The semaphore is never closed.
        let _turn = AT_ONCE.acquire().await;
        let key = self.private_key().await?;
        let expected = host_key(&self.settings.host_key)?;
        let connection = self.connect(expected, key).await?;
        let printed = self.execute(&connection, command).await;
        // The answer has already arrived, so errors while disconnecting do not matter.
        drop(connection.disconnect(Disconnect::ByApplication, "", "").await);
        printed
    }

    /// Reads the private key. Its file may be on a file system that hangs, such as `/etc/pve` without quorum.
    async fn private_key(&self) -> Result<PrivateKey, SshError> {
        let source = self.settings.key.clone();
        let read = tokio::task::spawn_blocking(move || source.read()).await;
        let text = read.map_err(|_| SshError::Key(KeyFault::Unreadable))?.map_err(SshError::Secret)?;
        private_key(&text).map_err(SshError::Key)
    }

    async fn connect(&self, expected: PublicKey, key: PrivateKey) -> Result<client::Handle<Peer>, SshError> {
        let address = self.address();
        let Ssh { host, port, user, .. } = &self.settings;
        let unreachable = |source| SshError::Unreachable { address: address.clone(), source };
        let socket = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
        // The server presents a key of the first kind in this list that it has, so the expected kind comes
        // first.
        let mut kinds = vec![expected.algorithm()];
        kinds.extend(KINDS.into_iter().filter(|kind| *kind != expected.algorithm()));
        let config = client::Config {
            preferred: Preferred { key: kinds.into(), ..Preferred::DEFAULT },
            inactivity_timeout: Some(self.limit),
            ..client::Config::default()
        };
        let peer = Peer { expected: expected.clone() };
        let connected = client::connect_stream(Arc::new(config), socket, peer).await;
        let mut connection = connected.map_err(|error| self.no_handshake(error, &expected))?;
        let fingerprint = described(key.public_key());
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
        match connection.authenticate_publickey(user, key).await {
            Ok(AuthResult::Success) => Ok(connection),
            Ok(AuthResult::Failure { .. }) => {
                Err(SshError::Refused { address, user: user.clone(), key: fingerprint })
            }
            Err(error) => Err(self.broken(error)),
        }
    }

    fn no_handshake(&self, error: HandshakeError, expected: &PublicKey) -> SshError {
        let Ssh { host, port, .. } = &self.settings;
        let seen = match error {
            HandshakeError::OtherKey(seen) => seen,
            HandshakeError::Protocol(russh::Error::NoCommonAlgo {
                kind: russh::AlgorithmKind::Key,
                theirs,
                ..
            }) => {
                format!("of another kind ({})", theirs.join(", "))
            }
            HandshakeError::Protocol(error) => return self.broken(error),
        };
        SshError::HostKey {
            address: self.address(),
            seen,
            expected: described(expected),
            scan: format!("ssh-keyscan -p {port} {host}"),
        }
    }

    async fn execute(&self, connection: &client::Handle<Peer>, command: &str) -> Result<Printed, SshError> {
        let broken = |error| self.broken(error);
        let mut channel = connection.channel_open_session().await.map_err(broken)?;
        channel.exec(true, command).await.map_err(broken)?;
        // The buffer is allocated at its maximum size, because a reallocation would leave copies of the token
        // in memory.
        let mut stdout = Vec::with_capacity(MOST_OUTPUT);
        let mut stderr = Vec::new();
        let mut end = CommandEnd::Unknown;
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => self.keep(&mut stdout, &data)?,
                ChannelMsg::ExtendedData { data, .. } => self.keep(&mut stderr, &data)?,
                ChannelMsg::ExitStatus { exit_status } => end = CommandEnd::Exit(exit_status),
                ChannelMsg::ExitSignal { signal_name, .. } => {
                    end = CommandEnd::Signal(format!("{signal_name:?}"));
                }
                ChannelMsg::Failure => {
                    end = CommandEnd::Denied;
                    break;
                }
                ChannelMsg::Close => break,
                _ => {}
            }
        }
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ok(Printed { stdout: stdout.into(), stderr, end })
    }

    fn keep(&self, kept: &mut Vec<u8>, data: &[u8]) -> Result<(), SshError> {
        if kept.len() + data.len() > MOST_OUTPUT {
            return Err(SshError::Answer {
                command: "kubeadm".to_owned(),
                address: self.address(),
                what: "more output than expected",
            });
        }
        kept.extend_from_slice(data);
        Ok(())
    }

    fn broken(&self, source: russh::Error) -> SshError {
        SshError::Broken { address: self.address(), source: Box::new(source) }
    }
}

/// Accepts only a peer that holds this key.
struct Peer {
    expected: PublicKey,
}

#[derive(Debug)]
enum HandshakeError {
    OtherKey(String),
    Protocol(russh::Error),
}

impl From<russh::Error> for HandshakeError {
    fn from(error: russh::Error) -> Self {
        Self::Protocol(error)
    }
}

impl client::Handler for Peer {
    type Error = HandshakeError;

    async fn check_server_key(&mut self, seen: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        match seen {
            PublicKeyOrCertificate::PublicKey { key, .. } if key.key_data() == self.expected.key_data() => {
                Ok(true)
            }
            PublicKeyOrCertificate::PublicKey { key, .. } => Err(HandshakeError::OtherKey(described(key))),
            PublicKeyOrCertificate::Certificate(_) => {
                Err(HandshakeError::OtherKey("in a certificate".to_owned()))
            }
        }
    }
}

/// Quotes a word for any POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/=@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::SecretSource;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let cases = [
            ("--ttl", "--ttl"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a\nb", "'a\nb'"),
        ];
        for (word, expected) in cases {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn who_is_not_root_asks_sudo_and_an_ipv6_address_is_bracketed() {
        let settings = |user: &str, host: &str| Ssh {
            host: host.to_owned(),
            port: 22,
            user: user.to_owned(),
            key: SecretSource::File("/nonexistent".into()),
            host_key: String::new(),
        };
        let host = |user, host| TokenHost::new(settings(user, host), Duration::from_secs(1));
        assert_eq!(host("root", "cp1").command(&["token", "list"]), "kubeadm token list");
        assert_eq!(host("ops", "cp1").command(&["token", "list"]), "sudo -n kubeadm token list");
        assert_eq!(host("ops", "cp1").address(), "cp1:22");
        assert_eq!(host("ops", "fd00::1").address(), "[fd00::1]:22");
    }
}

//! The local socket: whoever connects gets the status as JSON and the end of the stream.
//!
//! A file beside the socket is locked for as long as the daemon lives: the kernel lets go of it however the daemon ends, so
//! that a socket without a lock is a dead daemon's, and one with a lock is never taken away from a living one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::{Board, Status};

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/pve-autoscaler/control.sock";
/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long nobody is let in after a connection could not be taken, e.g. because no file can be opened.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest answer that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// The socket could not be used.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Nobody listens there, or nobody may.
    #[error("no daemon answers at `{path}`")]
    Unreachable {
        /// The socket.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It answered something else.
    #[error("what answers at `{path}` is no daemon of this version")]
    Malformed {
        /// The socket.
        path: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A daemon lives there.
    #[error("another daemon already answers at `{path}`")]
    InUse {
        /// The socket.
        path: String,
    },
    /// There is a file of another kind, which is left alone.
    #[error("`{path}` is there and is no socket")]
    NoSocket {
        /// The file.
        path: String,
    },
    /// It cannot be made.
    #[error("cannot listen at `{path}`")]
    Unusable {
        /// The socket.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A socket that is this daemon's alone for as long as this lives.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    _lock: File,
}

impl Listener {
    /// Listens at this path. A socket that a dead daemon left behind is replaced. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// A daemon that lives listens there, another file is there, or the socket cannot be made.
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        let name = || path.display().to_string();
        let unusable = |source| SocketError::Unusable { path: name(), source };
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(beside(path));
        let lock = lock.map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SocketError::InUse { path: name() }),
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::NoSocket { path: name() });
            }
            // Somebody who knows no lock may still listen there.
            Ok(_) if UnixStream::connect(path).await.is_ok() => {
                return Err(SocketError::InUse { path: name() });
            }
            Ok(_) => std::fs::remove_file(path).map_err(unusable)?,
        }
        let socket = UnixListener::bind(path).map_err(unusable)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(unusable)?;
        Ok(Self { socket, path: path.to_owned(), _lock: lock })
    }

    /// Serves the status until the future is dropped.
    pub async fn serve(&self, board: &Board) {
        loop {
            let mut stream = match self.socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "nobody can be let in at the control socket");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let answer = match serde_json::to_vec(&board.status()) {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::error!(%error, "the status cannot be written as JSON");
                    continue;
                }
            };
            // One at a time, each with a limit: nobody can keep the daemon busy here.
            let written = tokio::time::timeout(ANSWER_LIMIT, async {
                stream.write_all(&answer).await?;
                stream.shutdown().await
            });
            match written.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a status could not be sent"),
                Err(_) => tracing::debug!("a status was not read in time"),
            }
        }
    }
}

impl Drop for Listener {
    /// The lock is still held here: what is removed is ours. The lock's file stays: removing it would let two hold it.
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "the control socket could not be removed");
        }
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Asks the daemon at this socket.
///
/// # Errors
/// Nobody answers there, or something else does.
pub async fn ask(path: &Path) -> Result<Status, SocketError> {
    let name = || path.display().to_string();
    let unreachable = |source| SocketError::Unreachable { path: name(), source };
    let reading = async {
        let stream = UnixStream::connect(path).await?;
        let mut text = Vec::new();
        stream.take(LARGEST).read_to_end(&mut text).await?;
        Ok(text)
    };
    let text = tokio::time::timeout(ANSWER_LIMIT, reading).await;
    let text = text.unwrap_or_else(|elapsed| Err(elapsed.into())).map_err(unreachable)?;
    serde_json::from_slice(&text).map_err(|source| SocketError::Malformed { path: name(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[tokio::test]
    async fn a_living_daemons_socket_is_refused_and_a_dead_ones_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        // A socket whose listener is gone stays as a file.
        drop(UnixListener::bind(&path).unwrap());
        let first = Listener::bind(&path).await.unwrap();
        assert!(matches!(Listener::bind(&path).await, Err(SocketError::InUse { .. })));
        drop(first);
        assert!(!path.exists());
        Listener::bind(&path).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "text").unwrap();
        assert!(matches!(Listener::bind(&path).await, Err(SocketError::NoSocket { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[tokio::test]
    async fn a_listener_that_knows_no_lock_is_not_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let _other = UnixListener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path).await, Err(SocketError::InUse { .. })));
    }

    #[tokio::test]
    async fn who_asks_gets_the_status() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let board = Board::default();
        board.introduce("pve1", "active", Timestamp::UNIX_EPOCH);
        let listener = Listener::bind(&path).await.unwrap();
        tokio::select! {
            () = listener.serve(&board) => {}
            status = ask(&path) => assert_eq!(status.unwrap().instance, "pve1"),
        }
    }
}

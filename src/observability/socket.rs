//! The local socket: whoever connects gets the status as JSON and the end of the stream.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::{Board, Status};

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/pve-autoscaler/control.sock";
/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
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
}

/// Serves the status until the future is dropped. A socket that a dead daemon left behind is replaced.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve(path: &Path, board: Board) -> std::io::Result<()> {
    if UnixStream::connect(path).await.is_err() {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let answer = serde_json::to_vec(&board.status())?;
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

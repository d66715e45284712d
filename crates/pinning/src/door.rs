//! The daemon's connection to the helper on its host.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::request::{Answer, Request};

/// The time limit for an answer. It is the sum of the helper's own time limits for the request, its lock,
/// `qm` and the answer.
const LIMIT: Duration = Duration::from_secs(55);
/// The maximum size of an answer, in bytes.
const LARGEST: u64 = 64 << 10;

/// Why there is no answer from the helper.
#[derive(Debug, Error)]
pub enum DoorError {
    /// No helper listens at the socket, or the helper closed the connection.
    #[error("the helper at `{}` does not answer", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The answer could not be parsed.
    #[error("the helper at `{}` sent an answer that this version cannot parse", path.display())]
    Malformed {
        /// The socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// A way to ask the helper on this host.
pub trait Door: Send + Sync {
    /// Sends a request, and waits for the answer.
    fn ask(&self, request: Request) -> BoxFuture<'_, Result<Answer, DoorError>>;
}

/// A [`Door`] to the helper that listens at a socket.
#[derive(Clone, Debug)]
pub struct SocketDoor {
    path: PathBuf,
}

impl SocketDoor {
    /// A door to the helper that listens at this socket.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    async fn exchange(&self, request: &Request) -> Result<Vec<u8>, std::io::Error> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let mut stream = UnixStream::connect(&self.path).await?;
        stream.write_all(&line).await?;
        let mut answer = Vec::new();
        stream.take(LARGEST).read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

impl Door for SocketDoor {
    fn ask(&self, request: Request) -> BoxFuture<'_, Result<Answer, DoorError>> {
        Box::pin(async move {
            let answered = tokio::time::timeout(LIMIT, self.exchange(&request)).await;
            let unreachable = |source| DoorError::Unreachable { path: self.path.clone(), source };
            let answer = answered.unwrap_or_else(|late| Err(late.into())).map_err(unreachable)?;
            serde_json::from_slice(&answer)
                .map_err(|source| DoorError::Malformed { path: self.path.clone(), source })
        })
    }
}

//! The local socket. A client sends its request as one line of JSON and receives the response, after which
//! the daemon closes the stream. A client that sends no request receives the status.
//!
//! The daemon locks a file beside the socket while it runs, and the kernel releases the lock no matter how
//! the daemon ends. If the file is locked, a running daemon owns the socket. If the file is not locked and no
//! other program listens on the socket, an earlier daemon left the socket behind, and it is replaced.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use runtime::boxed;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::orders::{Answer, Order, Orders, Request, may_order};
use super::{Board, Status};

/// The default path of the daemon's socket.
pub const DEFAULT_SOCKET: &str = "/run/pve-autoscaler/control.sock";
/// The time limit for a client's request, and its maximum length in bytes.
const REQUEST: (Duration, u64) = (Duration::from_secs(1), 16 << 10);
/// The time limit for carrying out an order. It is slightly shorter than the time for which clients wait for
/// the response.
const ORDER_LIMIT: Duration = Duration::from_secs(20);
/// How long a client waits for the answer to an order.
const ORDER_ANSWER: Duration = Duration::from_secs(25);
/// The time limit for sending or receiving a response.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long to pause after failing to accept a connection, e.g. because too many files are open.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of clients that are served at the same time; others wait for their turn.
const CLIENTS: usize = 64;
/// The largest answer that a client reads, in bytes.
const LARGEST: u64 = 64 << 20;

/// Why the socket cannot be used, or an order failed.
#[derive(Debug, Error)]
pub enum SocketError {
    /// No daemon listens on the socket, or access is denied.
    #[error("no daemon answers at `{path}`")]
    Unreachable {
        /// The socket.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The response could not be parsed.
    #[error("the program that listens on `{path}` is not a daemon of this version")]
    Malformed {
        /// The socket.
        path: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The order was not carried out.
    #[error("the daemon refused the order: {reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
    /// Another daemon listens on the socket.
    #[error("another daemon already answers at `{path}`")]
    InUse {
        /// The socket.
        path: String,
    },
    /// A file exists at the path, but it is not a socket. The file is not changed.
    #[error("`{path}` exists and is not a socket")]
    NoSocket {
        /// The file.
        path: String,
    },
    /// The socket cannot be created.
    #[error("cannot listen on `{path}`")]
    Unusable {
        /// The socket.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl SocketError {
    /// The path of the socket, if the error contains it.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Unreachable { path, .. }
            | Self::Malformed { path, .. }
            | Self::InUse { path }
            | Self::NoSocket { path }
            | Self::Unusable { path, .. } => Some(path),
            Self::Refused { .. } => None,
        }
    }
}

/// A listening socket that this daemon owns exclusively until this value is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    owner: u32,
    _lock: File,
}

impl Listener {
    /// Listens on a socket at this path. A socket that an earlier daemon left behind is replaced. This
    /// function must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if another daemon or program uses the socket at this path, if the file at this path
    /// is not a socket, or if the socket cannot be created.
    #[boxed]
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
            // A program that does not use the lock may still listen on the socket.
            Ok(_) if UnixStream::connect(path).await.is_ok() => {
                return Err(SocketError::InUse { path: name() });
            }
            Ok(_) => std::fs::remove_file(path).map_err(unusable)?,
        }
        let socket = UnixListener::bind(path).map_err(unusable)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(unusable)?;
        let owner = std::fs::symlink_metadata(path).map_err(unusable)?.uid();
        Ok(Self { socket, path: path.to_owned(), owner, _lock: lock })
    }

    /// Serves several clients at the same time until the future is dropped. A client that neither sends nor
    /// reads does not block the others.
    #[boxed]
    pub async fn serve(&self, board: &Board, orders: &dyn Orders) {
        let mut clients = FuturesUnordered::new();
        let mut open = Instant::now();
        loop {
            let next = async {
                tokio::time::sleep_until(open).await;
                self.socket.accept().await
            };
            tokio::select! {
                Some(()) = clients.next() => {}
                came = next, if clients.len() < CLIENTS => match came {
                    Ok((stream, _)) => clients.push(self.attend(stream, board, orders)),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections on the control socket");
                        open = Instant::now() + PAUSE;
                    }
                },
            }
        }
    }

    /// Serves one client. Reading its request, carrying out the order and writing the response each have a
    /// time limit.
    async fn attend(&self, mut stream: UnixStream, board: &Board, orders: &dyn Orders) {
        let answer = match wanted(&mut stream).await {
            Some(Request::Order(order)) => serde_json::to_vec(&self.carry_out(&stream, order, orders).await),
            Some(Request::Status) => serde_json::to_vec(&board.status()),
            None => serde_json::to_vec(&Answer::Refused("unknown or incomplete request".to_owned())),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return tracing::error!(%error, "the answer cannot be serialized as JSON"),
        };
        let written = tokio::time::timeout(ANSWER_LIMIT, async {
            stream.write_all(&answer).await?;
            stream.shutdown().await
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an answer could not be sent"),
            Err(_) => tracing::debug!("a client did not read its answer in time"),
        }
    }

    async fn carry_out(&self, stream: &UnixStream, order: Order, orders: &dyn Orders) -> Answer {
        let peer = stream.peer_cred().ok().map(|peer| peer.uid());
        if !may_order(peer, self.owner) {
            tracing::warn!(uid = peer, ?order, "an order from another user was refused");
            return Answer::Refused("only root and the daemon's own user may give orders".to_owned());
        }
        tracing::info!(uid = peer, ?order, "received an order on the control socket");
        match tokio::time::timeout(ORDER_LIMIT, orders.follow(order)).await {
            Ok(Ok(())) => Answer::Done,
            Ok(Err(why)) => Answer::Refused(why),
            Err(_) => Answer::Refused(format!("the order took longer than {} s", ORDER_LIMIT.as_secs())),
        }
    }
}

/// A client's request. A client that sends nothing requests the status. Returns `None` if the request cannot
/// be parsed or is incomplete after the time limit. Such a client does not receive the status, because it may
/// be waiting for the answer to an order.
async fn wanted(stream: &mut UnixStream) -> Option<Request> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream).take(REQUEST.1);
    // If the time limit is reached or the connection fails, `line` contains what was read until then.
    let _ = tokio::time::timeout(REQUEST.0, reader.read_until(b'\n', &mut line)).await;
    if line.is_empty() { Some(Request::Status) } else { serde_json::from_slice(&line).ok() }
}

impl Drop for Listener {
    /// Removes the socket. The socket belongs to this daemon, because the daemon still holds the lock. The
    /// lock file is kept: if it were removed, two daemons could hold locks at the same time.
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

/// Asks the daemon at this socket for its status.
///
/// # Errors
/// Returns an error if no daemon listens on the socket, or another program responds.
#[boxed]
pub async fn ask(path: &Path) -> Result<Status, SocketError> {
    let text = exchange(path, &Request::Status, ANSWER_LIMIT).await?;
    read(path, &text)
}

/// Sends an order to the daemon at this socket.
///
/// # Errors
/// Returns an error if no daemon listens on the socket, another program responds, or the daemon refuses the
/// order.
#[boxed]
pub async fn order(path: &Path, order: Order) -> Result<(), SocketError> {
    let text = exchange(path, &Request::Order(order), ORDER_ANSWER).await?;
    match read(path, &text)? {
        Answer::Done => Ok(()),
        Answer::Refused(reason) => Err(SocketError::Refused { reason }),
    }
}

async fn exchange(path: &Path, request: &Request, limit: Duration) -> Result<Vec<u8>, SocketError> {
    let name = || path.display().to_string();
    let mut line =
        serde_json::to_vec(request).map_err(|source| SocketError::Malformed { path: name(), source })?;
    line.push(b'\n');
    let asking = async {
        let mut stream = UnixStream::connect(path).await?;
        // A failed write is ignored. The daemon may have closed the connection early and sent the reason,
        // which is read next.
        let _ = stream.write_all(&line).await;
        let mut text = Vec::new();
        match stream.take(LARGEST).read_to_end(&mut text).await {
            // The connection is reset if the daemon responds without reading the request.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !text.is_empty() => {}
            read => {
                read?;
            }
        }
        Ok(text)
    };
    let text = tokio::time::timeout(limit, asking).await;
    let unreachable = |source| SocketError::Unreachable { path: name(), source };
    text.unwrap_or_else(|elapsed| Err(elapsed.into())).map_err(unreachable)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, SocketError> {
    let malformed = |source| SocketError::Malformed { path: path.display().to_string(), source };
    serde_json::from_slice(text).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[tokio::test]
    async fn a_living_daemons_socket_is_refused_and_a_dead_ones_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        // The socket's file still exists after its listener is gone.
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

    /// Records the orders that it receives, and refuses to resume.
    #[derive(Default)]
    struct Noted(std::sync::Mutex<Vec<Order>>);

    impl Orders for Noted {
        fn follow(&self, order: Order) -> futures::future::BoxFuture<'_, Result<(), String>> {
            self.0.lock().unwrap().push(order.clone());
            Box::pin(async move { if order == Order::Resume { Err("not yet".to_owned()) } else { Ok(()) } })
        }
    }

    #[tokio::test]
    async fn who_asks_gets_the_status_and_who_orders_what_came_of_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let (board, orders) = (Board::default(), Noted::default());
        board.introduce("pve1", "active", Timestamp::UNIX_EPOCH);
        let listener = Listener::bind(&path).await.unwrap();
        let pause = Order::Pause { reason: "a \"test\"\nof it".to_owned() };
        let asking = async {
            assert_eq!(ask(&path).await.unwrap().instance, "pve1");
            order(&path, pause.clone()).await.unwrap();
            let refused = order(&path, Order::Resume).await.unwrap_err();
            assert_eq!(refused.to_string(), "the daemon refused the order: not yet");
            // Clients that send nothing, or send something that cannot be parsed.
            let mut silent = UnixStream::connect(&path).await.unwrap();
            silent.shutdown().await.unwrap();
            let mut text = String::new();
            silent.read_to_string(&mut text).await.unwrap();
            assert!(text.contains("pve1"), "{text}");
            let mut other = UnixStream::connect(&path).await.unwrap();
            other.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            text.clear();
            other.read_to_string(&mut text).await.unwrap();
            assert!(text.contains("refused"), "{text}");
        };
        tokio::select! {
            () = listener.serve(&board, &orders) => {}
            () = asking => {}
        }
        assert_eq!(*orders.0.lock().unwrap(), [pause, Order::Resume]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_arrives_only_in_part_is_none_for_the_status() {
        for (sent, expected) in [
            (&b""[..], Some(Request::Status)),
            (b"\"status\"", Some(Request::Status)),
            (b"{\"order\":\"resume\"}", Some(Request::Order(Order::Resume))),
            (b"{\"order\":\"res", None),
            (b"\"\xff", None),
        ] {
            let (mut client, mut server) = UnixStream::pair().unwrap();
            client.write_all(sent).await.unwrap();
            assert_eq!(wanted(&mut server).await, expected, "{}", String::from_utf8_lossy(sent));
        }
    }

    #[tokio::test]
    async fn a_client_that_says_or_reads_nothing_holds_up_no_other() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let (board, orders) = (Board::default(), Noted::default());
        let listener = Listener::bind(&path).await.unwrap();
        let asking = async {
            let mut idle = Vec::new();
            for _ in 0..CLIENTS - 1 {
                idle.push(UnixStream::connect(&path).await.unwrap());
            }
            let began = Instant::now();
            ask(&path).await.unwrap();
            assert!(began.elapsed() < REQUEST.0, "{:?}", began.elapsed());
            // A client beyond the limit is served once another client has received its response.
            idle.extend([UnixStream::connect(&path).await.unwrap()]);
            ask(&path).await.unwrap();
            assert!(began.elapsed() < REQUEST.0 * 3, "{:?}", began.elapsed());
        };
        tokio::select! {
            () = listener.serve(&board, &orders) => {}
            () = asking => {}
        }
    }
}

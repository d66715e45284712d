//! Runs long computations without delaying other tasks.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs a long computation. On a multi-threaded runtime, all other tasks continue in the meantime. On a
/// single-threaded one, as in tests with virtual time, the computation takes no virtual time.
pub(super) fn at_length<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_meanwhile() {
        let heard = tokio::spawn(async {
            let (sender, receiver) = mpsc::channel();
            // The new task is queued on this thread: it only runs if another thread takes over the queue.
            tokio::spawn(async move { sender.send(()) });
            at_length(|| receiver.recv_timeout(Duration::from_secs(20)))
        });
        assert_eq!(heard.await.unwrap(), Ok(()));
    }
}

//! `status` as an operator runs it.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

use std::os::unix::net::UnixListener;

use futures::future::BoxFuture;
use jiff::Timestamp;
use pve_autoscaler::observability::{Board, Listener, Order, Orders, Status};
use tempfile::TempDir;
use tokio::process::Command;

async fn status(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    let output = command.arg("status").args(arguments).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn without_a_daemon_it_says_so_and_how_to_start_one() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("control.sock").display().to_string();
    let (code, out, err) = status(&["--socket", &path]).await;
    assert_eq!((code, out.as_str()), (6, ""), "{err}");
    assert!(err.contains(&format!("no daemon answers at `{path}`")), "{err}");
    assert!(err.contains("systemctl start pve-autoscaler"), "{err}");
}

#[tokio::test]
async fn something_else_that_answers_is_no_daemon() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("other.sock");
    let other = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        use std::io::Write;
        other.accept().unwrap().0.write_all(b"220 ready\r\n").unwrap();
    });
    let (code, _, err) = status(&["--socket", &path.display().to_string()]).await;
    assert_eq!(code, 6, "{err}");
    assert!(err.contains("not a daemon of this version"), "{err}");
}

struct NoOrders;

impl Orders for NoOrders {
    fn follow(&self, order: Order) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { Err(format!("no orders: {order:?}")) })
    }
}

#[tokio::test]
async fn a_daemons_status_is_shown_to_people_and_to_programs() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("control.sock");
    let board = Board::default();
    board.introduce("pve1", "observe", Timestamp::UNIX_EPOCH);
    let listener = Listener::bind(&path).await.unwrap();
    let served = board.clone();
    let serving = tokio::spawn(async move { listener.serve(&served, &NoOrders).await });
    let path = path.display().to_string();
    let (code, out, err) = status(&["--socket", &path]).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("daemon on pve1: observing only"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours without a terminal: {out}");
    let (code, out, err) = status(&["--socket", &path, "--output", "json"]).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(serde_json::from_str::<Status>(&out).unwrap(), board.status());
    serving.abort();
}

#[tokio::test]
async fn watching_fits_the_terminal_follows_its_size_and_leaves_it_clean() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("control.sock");
    let board = Board::default();
    // This name is wider than a narrow terminal.
    board.introduce(&format!("pve1.{}", "a-long-domain.".repeat(8)), "active", Timestamp::UNIX_EPOCH);
    let listener = Listener::bind(&path).await.unwrap();
    let serving = tokio::spawn(async move { listener.serve(&board, &NoOrders).await });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/watch_on_a_terminal.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(env!("CARGO_BIN_EXE_pve-autoscaler")).arg(&path).kill_on_drop(true);
    let Ok(output) = command.output().await else {
        eprintln!("skipped: python3 is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serving.abort();
}

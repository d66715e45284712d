//! Tests the status page in a real browser. The test is skipped if Chromium is not installed. If the
//! environment contains `PAGE_SHOTS=FOLDER`, the screenshots are kept in this folder.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;

use crate::lab_kubernetes::{Bench, Lab};
use crate::shared::bench::{Kubernetes, POOL, cluster};

/// The screenshots: name, width and height, and Chromium's number for the preferred colour scheme.
const LOOKS: [(&str, &str, &str); 3] =
    [("light", "1200,1500", "1"), ("dark", "1200,1500", "0"), ("narrow", "390,2600", "1")];

/// Opens an address in Chromium with these options. Returns Chromium's standard output and standard error, or
/// `None` if Chromium is not installed.
async fn chromium(profile: &Path, address: &str, options: &[String]) -> Option<(String, String)> {
    let mut command = Command::new("chromium");
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(options)
        .arg(address)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(Lab::LONG, command.output()).await.unwrap();
    let output = output.ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr)))
}

/// A port on which no program listens.
fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_is_shown_by_a_browser_in_light_in_dark_and_on_a_phone() {
    let mut bench = Bench::idle(cluster(), POOL).await.unwrap();
    let (file, port) = (bench.file("config.toml"), port());
    let text = std::fs::read_to_string(&file).unwrap();
    let wanted = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\nstatus_page = true");
    std::fs::write(&file, text.replace("[metrics]\nenabled = false", &wanted)).unwrap();
    bench.start().await;
    bench.deploy("web", 2, "1500m", "1Gi").await;
    bench.deploy("train", 1, "64", "1Gi").await;
    bench.until("two pods run", |bench| bench.running() == 2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let folder = TempDir::new().unwrap();
    let shots = std::env::var_os("PAGE_SHOTS").map_or_else(|| folder.path().to_owned(), PathBuf::from);
    let address = format!("http://localhost:{port}/status");
    let Some((page, said)) = chromium(folder.path(), &address, &["--dump-dom".to_owned()]).await else {
        eprintln!("skipped: Chromium is not installed");
        return bench.stop().await;
    };
    assert!(!said.contains("CONSOLE"), "the browser reported an error: {said}");
    for node in bench.nodes("workers") {
        assert!(page.contains(&node), "{node}: {page}");
    }
    for words in ["default/train", "wants 64 CPU", "<svg", "class=\"m ready\"", "is ready"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let mut sizes = Vec::new();
    for (name, size, colours) in LOOKS {
        let shot = shots.join(format!("status-page-{name}.png"));
        let options = [
            format!("--window-size={size}"),
            format!("--blink-settings=preferredColorScheme={colours}"),
            format!("--screenshot={}", shot.display()),
        ];
        chromium(folder.path(), &address, &options).await.unwrap();
        sizes.push(std::fs::read(&shot).unwrap_or_default());
    }
    assert!(sizes.iter().all(|shot| shot.len() > 20_000), "a screenshot is almost empty");
    assert_ne!(sizes[0], sizes[1], "the dark page looks like the light one");
    bench.stop().await;
}

//! Tests the Redfish client against an independent emulator, sushy-tools. Its fake systems only change state
//! some seconds after a request.
//!
//! The emulator is installed once, from the Python package index into the target folder. If Python or the
//! index is not available, the test is skipped; with `CI=true` in the environment, it fails instead.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use proxmox::redfish::{Client, Kind, PowerState, Reset, Settings};
use proxmox::{Transport, Trust, connect};
use secrecy::SecretString;

/// The release of the emulator that is installed.
const RELEASE: &str = "sushy-tools==2.2.0";
const PASSWORD: &str = "hunter2";
/// The line in the emulator's user file: the user's name and the bcrypt hash of the password.
const KEPT: &str = "power:$2b$04$/jk/04xZ4Jc8.COivtcPPuT3tzi6vBTZnIRal3P6ad.SuO5ItBgK6\n";
const FIRST: &str = "27946b59-9e44-4fa7-8e91-f3527a1ef094";
const SECOND: &str = "57946b59-9e44-4fa7-8e91-f3527a1ef094";
/// The time limit for the emulator to change a system's state. The emulator needs much less time.
const FOLLOWS: Duration = Duration::from_mins(1);

/// The emulator's program; `None` if it cannot be installed. Both tests call this at the same time, but the
/// emulator is installed only once.
fn installed() -> Option<PathBuf> {
    static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(install);
    PROGRAM.clone()
}

/// Installs the emulator if it is not installed yet.
fn install() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redfish-emulator");
    let program = folder.join("bin/sushy-emulator");
    let runs = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let there = program.exists()
        || runs(Command::new("python3").args(["-m", "venv"]).arg(&folder))
            && runs(Command::new(folder.join("bin/pip")).args(["install", "--quiet", RELEASE]));
    if there {
        return Some(program);
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "{RELEASE} cannot be installed");
    eprintln!("skipped: {RELEASE} cannot be installed: no python3 with venv and pip, or no package index");
    None
}

/// A running emulator, whose systems are off at first.
struct Emulator {
    process: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Emulator {
    fn start(program: &Path, systems: &[&str]) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let users = folder.path().join("users");
        std::fs::write(&users, KEPT).unwrap();
        let systems: Vec<String> = systems
            .iter()
            .map(|uuid| format!("{{'uuid': '{uuid}', 'name': '{uuid}', 'power_state': 'Off', 'nics': []}},"))
            .collect();
        let settings = format!(
            "SUSHY_EMULATOR_AUTH_FILE = '{}'\nSUSHY_EMULATOR_STATE_DIR = '{}'\nSUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\n",
            users.display(),
            folder.path().display(),
            systems.concat(),
        );
        let file = folder.path().join("emulator.conf");
        std::fs::write(&file, settings).unwrap();
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(program)
            .args(["--fake", "--interface", "127.0.0.1", "--port", &port.to_string(), "--config"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, endpoint: format!("http://127.0.0.1:{port}"), _folder: folder }
    }

    fn client(&self, system: Option<&str>, password: &str) -> Client {
        let settings = Settings {
            endpoint: self.endpoint.clone(),
            system: system.map(ToOwned::to_owned),
            user: "power".to_owned(),
            timeout: Duration::from_secs(10),
        };
        Client::new(transport(), settings, &SecretString::from(password)).unwrap()
    }
}

/// The same transport as in the daemon. The trust setting only matters with TLS.
fn transport() -> Transport {
    let seconds = Duration::from_secs;
    connect(&Trust::Fingerprint(vec!["00"; 32].join(":")), seconds(5), seconds(20)).unwrap()
}

/// Waits until a condition is true. Waits in real time, because the emulator is a separate program.
async fn until<T>(what: &str, mut is_so: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = is_so().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let found = tokio::time::timeout(FOLLOWS, waiting).await;
    assert!(found.is_ok(), "still not true after {FOLLOWS:?}: {what}");
    found.unwrap()
}

#[tokio::test]
async fn a_system_is_switched_on_and_off_and_asked_for_nothing_that_is_there() {
    let Some(program) = installed() else { return };
    let emulator = Emulator::start(&program, &[FIRST]);
    let client = emulator.client(None, PASSWORD);
    let first = until("it answers", async || client.look().await.ok()).await;
    assert_eq!((first.power, first.uuid.as_deref()), (PowerState::Off, Some(FIRST)));
    for reset in [Reset::On, Reset::GracefulShutdown, Reset::ForceOff] {
        assert!(first.resets.iter().any(|one| one == reset.name()), "{:?}", first.resets);
    }
    assert!(!client.reset(Reset::ForceOff).await.unwrap(), "it is off");
    for (reset, state) in [
        (Reset::On, PowerState::On),
        (Reset::GracefulShutdown, PowerState::Off),
        (Reset::On, PowerState::On),
        (Reset::ForceOff, PowerState::Off),
    ] {
        assert!(client.reset(reset).await.unwrap(), "{reset:?}");
        until("it has followed", async || (client.power().await.ok()? == state).then_some(())).await;
        assert!(!client.reset(reset).await.unwrap(), "{reset:?} twice");
    }
}

#[tokio::test]
async fn every_refusal_is_told_apart() {
    let Some(program) = installed() else { return };
    let mut emulator = Emulator::start(&program, &[FIRST, SECOND]);
    let path = format!("/redfish/v1/Systems/{FIRST}");
    let client = emulator.client(Some(&path), PASSWORD);
    until("it answers", async || client.power().await.ok()).await;
    let wrong = emulator.client(Some(&path), "hunter3").power().await.unwrap_err();
    assert_eq!(wrong.kind, Kind::Unauthorized);
    assert!(!format!("{wrong} {wrong:?}").contains("hunter"), "{wrong}");
    let several = emulator.client(None, PASSWORD).power().await.unwrap_err();
    assert_eq!(several.kind, Kind::NotFound);
    assert!(several.to_string().contains(FIRST) && several.to_string().contains(SECOND), "{several}");
    let absent = emulator.client(Some("/redfish/v1/Systems/absent"), PASSWORD).power().await.unwrap_err();
    assert_eq!(absent.kind, Kind::NotFound);
    emulator.process.kill().unwrap();
    emulator.process.wait().unwrap();
    assert_eq!(client.power().await.unwrap_err().kind, Kind::Unreachable);
}

//! Checks the requirements of the tests with real VMs, and runs these tests in separate namespaces.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time limit for all tests with real VMs together.
const LIMIT: Duration = Duration::from_mins(30);
/// The environment variable that tells the tests which image guests are cloned from.
const IMAGE: &str = "PVE_AUTOSCALER_TEST_IMAGE";
/// The environment variable that is set if this process runs in a separate namespace.
const INSIDE: &str = "PVE_AUTOSCALER_TEST_INSIDE";
/// The oldest major release of QEMU whose emulation does not crash the guest's kernel.
const QEMU: u32 = 8;

/// Whether the tests run in CI, where a missing tool is a failure.
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// The guest image, if all requirements are met; else what is missing.
pub fn prepare() -> Result<PathBuf, String> {
    let version =
        said(Command::new("qemu-system-x86_64").arg("--version")).map_err(|_| "there is no QEMU")?;
    let major = version.split_whitespace().skip_while(|word| *word != "version").nth(1);
    let major = major.and_then(|text| text.split('.').next()?.parse::<u32>().ok()).unwrap_or(0);
    if major < QEMU {
        return Err(format!("QEMU {major} is older than {QEMU}: its emulation crashes guests"));
    }
    for program in ["qemu-img", "genisoimage", "ssh-keygen", "ip"] {
        said(Command::new("which").arg(program)).map_err(|_| format!("there is no {program}"))?;
    }
    said(namespace().arg("true")).map_err(|text| format!("cannot create namespaces: {text}"))?;
    if let Ok(image) = std::env::var(IMAGE) {
        return Ok(image.into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let programs =
        said(&mut Command::new(folder.join("rig/build"))).map_err(|text| format!("no Kubernetes: {text}"))?;
    let programs = programs.lines().last().unwrap_or_default().to_owned();
    let mut build = Command::new(folder.join("image/build"));
    build.env("KUBERNETES_BIN", programs);
    if !is_ci() {
        build.arg("--cached");
    }
    said(&mut build).map(PathBuf::from).map_err(|text| {
        format!("no guest image; build it with `KUBERNETES_BIN=$(tests/rig/build) tests/image/build`: {text}")
    })
}

/// Returns the standard output of a program, or why the program failed.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("it failed").to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A command that runs another command without any network and in a process namespace of its own. All of its
/// processes are killed when this process ends.
fn namespace() -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command
}

/// Runs the tests that are otherwise ignored. The tests of `facts` run at the same time as all others, each
/// group in its own namespaces. An emulated machine rarely keeps more than one core busy, and the tests spend
/// most of their time waiting for it.
pub async fn run_the_others(image: &Path) {
    // The filter in `cargo test --test real_vms -- NAME` applies to these tests, too.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word.contains("::")).collect();
    let parts = if wanted.is_empty() {
        vec![vec!["facts::".to_owned()], vec!["--skip".to_owned(), "facts::".to_owned()]]
    } else {
        vec![wanted]
    };
    let mut running: Vec<_> = parts.iter().map(|part| others(image, part).spawn().unwrap()).collect();
    let all = futures::future::join_all(running.iter_mut().map(tokio::process::Child::wait));
    let ended = tokio::time::timeout(LIMIT, all).await;
    let ended = ended.unwrap_or_else(|_| panic!("the real machines took longer than {LIMIT:?}"));
    assert!(ended.into_iter().all(|status| status.unwrap().success()), "see above");
}

/// The command that runs these tests of this program in separate namespaces.
fn others(image: &Path, tests: &[String]) -> tokio::process::Command {
    let mut command = namespace();
    command.arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--nocapture", "--test-threads=1"]).args(tests);
    let mut command = tokio::process::Command::from(command);
    command.env(IMAGE, image).env(INSIDE, "1").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The guest image, if this process runs in a separate namespace.
#[expect(clippy::print_stderr, reason = "a test that does not run says so")]
pub fn image() -> Option<PathBuf> {
    if std::env::var_os(INSIDE).is_none() {
        eprintln!("skipped: runs only in the namespace that the first test creates");
        return None;
    }
    std::env::var_os(IMAGE).map(PathBuf::from)
}

/// Whether OVMF and a TPM are available for machines. If not, the test that needs them is skipped, or fails
/// in CI.
#[expect(clippy::print_stderr, reason = "a test that does not run says so")]
pub fn has_uefi() -> bool {
    let ovmf = if Path::new("/usr/share/OVMF/OVMF_CODE_4M.fd").exists() { Ok(()) } else { Err("OVMF") };
    let swtpm = said(Command::new("which").arg("swtpm")).map_err(|_| "swtpm");
    let Err(missing) = ovmf.and(swtpm) else { return true };
    assert!(!is_ci(), "there is no {missing}");
    eprintln!("skipped: there is no {missing}, which `.ci/tools` installs");
    false
}

/// The folder with Ansible, if Ansible was installed. If not, the part that needs it is skipped, or fails in
/// CI.
#[expect(clippy::print_stderr, reason = "a test that does not run says so")]
pub fn ansible() -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image/ansible");
    match said(Command::new(script).arg("--cached")) {
        Ok(folder) => Some(folder),
        Err(missing) if is_ci() => panic!("no Ansible: {missing}"),
        Err(missing) => {
            eprintln!("skipped: no Ansible, which `tests/image/ansible` installs: {missing}");
            None
        }
    }
}

//! Tests of bootstrap tokens over SSH. The control plane node is a real SSH server on loopback that passes
//! each command to a shell with the test's own `kubeadm`.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pve_autoscaler::bootstrap::{CommandEnd, KeyFault, SshError, TokenHost};
use pve_autoscaler::settings::{SecretSource, Ssh};
use russh::keys::ssh_key::{LineEnding, private::Ed25519Keypair};
use russh::keys::{HashAlg, PrivateKey, PublicKey};
use russh::server::{self, Auth, ChannelOpenHandle, Msg, Server as _, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, MethodKind, MethodSet};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;

const TOKEN: &str = "abcdef.0123456789abcdef";
/// Long enough for any operation that ends at all, even on a busy computer.
const PATIENCE: Duration = Duration::from_secs(30);

fn key(seed: u8) -> PrivateKey {
    Ed25519Keypair::from_seed(&[seed; 32]).into()
}

/// The commands that the node has received, and the numbers of passwords and logins.
#[derive(Default)]
struct Seen {
    commands: Vec<String>,
    passwords: usize,
    logins: usize,
}

/// How the node behaves, apart from what its `kubeadm` does.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Runs,
    Denies,
    Hangs,
}

#[derive(Clone)]
struct Node {
    manner: Manner,
    user: &'static str,
    authorized: PublicKey,
    path: String,
    seen: Arc<Mutex<Seen>>,
}

impl server::Server for Node {
    type Handler = Self;

    fn new_client(&mut self, _: Option<std::net::SocketAddr>) -> Self {
        self.clone()
    }
}

impl server::Handler for Node {
    type Error = russh::Error;

    async fn auth_password(&mut self, _: &str, _: &str) -> Result<Auth, Self::Error> {
        self.seen.lock().unwrap().passwords += 1;
        Ok(Auth::Accept)
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if user != self.user || key.public_key.key_data() != self.authorized.key_data() {
            return Ok(Auth::reject());
        }
        self.seen.lock().unwrap().logins += 1;
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let command = String::from_utf8(command.to_vec()).unwrap();
        self.seen.lock().unwrap().commands.push(command.clone());
        match self.manner {
            Manner::Runs => {}
            Manner::Denies => return session.channel_failure(channel),
            Manner::Hangs => return std::future::pending().await,
        }
        let output = Command::new("/bin/sh").args(["-c", &command]).env("PATH", &self.path).output().await?;
        session.channel_success(channel)?;
        session.data(channel, output.stdout)?;
        session.extended_data(channel, 1, output.stderr)?;
        let status = output.status.code().and_then(|code| u32::try_from(code).ok()).unwrap();
        session.exit_status_request(channel, status)?;
        session.eof(channel)?;
        session.close(channel)
    }
}

/// A running node, with its folder, its port, and what it has received.
struct Lab {
    folder: TempDir,
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Lab {
    /// A node whose `kubeadm` is this shell script, with host key 1 and user key 2.
    async fn new(manner: Manner, user: &'static str, kubeadm: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().display().to_string();
        let arguments = folder.path().join("arguments");
        let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >>{}\n{kubeadm}\n", arguments.display());
        executable(&folder.path().join("kubeadm"), &script);
        executable(&folder.path().join("sudo"), "#!/bin/sh\n[ \"$1\" = -n ] && shift && exec \"$@\"\n");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let authorized = key(2).public_key().clone();
        let mut node = Node { manner, user, authorized, path: format!("{path}:/usr/bin:/bin"), seen };
        let seen = Arc::clone(&node.seen);
        let config = server::Config {
            keys: vec![key(1)],
            methods: MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password][..]),
            auth_rejection_time: Duration::ZERO,
            ..server::Config::default()
        };
        let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        tokio::spawn(async move { node.run_on_socket(Arc::new(config), &socket).await });
        let lab = Self { folder, port, seen };
        lab.write_key(&key(2).to_openssh(LineEnding::LF).unwrap());
        lab
    }

    fn write_key(&self, text: &str) {
        let path = self.folder.path().join("key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn settings(&self, user: &str) -> Ssh {
        Ssh {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            user: user.to_owned(),
            key: SecretSource::File(self.folder.path().join("key")),
            host_key: key(1).public_key().to_openssh().unwrap(),
        }
    }

    fn host(&self) -> TokenHost {
        TokenHost::new(self.settings("root"), PATIENCE)
    }

    /// The arguments of `kubeadm`, one in each line.
    fn arguments(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("arguments")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }
}

/// An error's text, including its causes, and its `{:?}` form.
fn everything(error: &SshError) -> String {
    let first: &dyn std::error::Error = error;
    let chain = std::iter::successors(Some(first), |error| error.source());
    let words: Vec<String> = chain.map(ToString::to_string).collect();
    format!("{}\n{error:?}", words.join("\n"))
}

async fn mint(host: &TokenHost) -> Result<String, SshError> {
    let token = host.mint(Duration::from_mins(30), "pve-autoscaler: machine w-1").await?;
    assert_eq!(token.id, "abcdef");
    assert!(!format!("{token:?}").contains("0123456789abcdef"), "the secret shows");
    Ok(token.token.expose_secret().to_owned())
}

#[tokio::test]
async fn the_right_key_gets_a_token_that_kubeadm_has_made() {
    let noise = "echo 'Welcome to cp1'; echo 'W1121 a warning' >&2";
    let lab = Lab::new(Manner::Runs, "root", &format!("{noise}\necho {TOKEN}")).await;
    assert_eq!(mint(&lab.host()).await.unwrap(), TOKEN);
    let expected = [
        "token",
        "create",
        "--ttl",
        "1800s",
        "--usages",
        "authentication,signing",
        "--groups",
        "system:bootstrappers:kubeadm:default-node-token",
        "--description",
        "pve-autoscaler: machine w-1",
    ];
    assert_eq!(lab.arguments(), expected);
    assert!(lab.seen(|seen| seen.commands.iter().all(|command| !command.contains(TOKEN))));
}

#[tokio::test]
async fn a_description_is_one_word_whatever_is_in_it() {
    let lab = Lab::new(Manner::Runs, "root", &format!("echo {TOKEN}")).await;
    let nasty = "it's $(touch /nonexistent/x) `id` \"; exit 3; # \\ * é";
    lab.host().mint(Duration::from_millis(10), nasty).await.unwrap();
    let arguments = lab.arguments();
    assert_eq!(arguments.last().map(String::as_str), Some(nasty));
    // For kubeadm, a lifetime of 0 would mean "forever".
    assert!(arguments.contains(&"1s".to_owned()));
}

#[tokio::test]
async fn who_is_not_root_goes_through_sudo() {
    let lab = Lab::new(Manner::Runs, "ops", &format!("echo {TOKEN}")).await;
    let host = TokenHost::new(lab.settings("ops"), PATIENCE);
    assert_eq!(mint(&host).await.unwrap(), TOKEN);
    assert!(lab.seen(|seen| seen.commands[0].starts_with("sudo -n kubeadm token create ")));
}

#[tokio::test]
async fn many_machines_get_their_tokens_at_once() {
    let lab = Lab::new(Manner::Runs, "root", &format!("echo {TOKEN}")).await;
    let host = lab.host();
    let all = futures::future::join_all((0..20).map(|_| mint(&host))).await;
    assert!(all.into_iter().all(|token| token.unwrap() == TOKEN));
}

#[tokio::test]
async fn another_host_is_refused_before_anything_is_shown_to_it() {
    let lab = Lab::new(Manner::Runs, "root", &format!("echo {TOKEN}")).await;
    let fingerprint = |seed| key(seed).public_key().fingerprint(HashAlg::Sha256).to_string();
    let ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBF/jSIhwBySgInr1n3mspd4OVwACH4pdbcQT\
                 O6f/Q0YvLo6qd3yPmX9/y/SjTPgPlZ+hMtzb9vVAkRVgMlgCHZw=";
    let others = [key(9).public_key().to_openssh().unwrap(), ecdsa.to_owned()];
    for other in others {
        let expected = PublicKey::from_openssh(&other).unwrap().fingerprint(HashAlg::Sha256).to_string();
        let settings = Ssh { host_key: other, ..lab.settings("root") };
        let error = mint(&TokenHost::new(settings, PATIENCE)).await.unwrap_err();
        assert!(matches!(error, SshError::HostKey { .. }), "{error:?}");
        assert!(!error.passes());
        let words = error.to_string();
        let scan = format!("ssh-keyscan -p {} 127.0.0.1", lab.port);
        for part in [&fingerprint(1), &expected, &scan] {
            assert!(words.contains(part.as_str()), "{part} is not in: {words}");
        }
    }
    assert_eq!(lab.seen(|seen| (seen.logins, seen.commands.len())), (0, 0));
}

#[tokio::test]
async fn another_user_key_is_refused_and_no_password_is_tried() {
    let lab = Lab::new(Manner::Runs, "root", &format!("echo {TOKEN}")).await;
    lab.write_key(&key(3).to_openssh(LineEnding::LF).unwrap());
    let error = mint(&lab.host()).await.unwrap_err();
    assert!(matches!(error, SshError::Refused { .. }), "{error:?}");
    assert!(!error.passes());
    assert!(error.to_string().contains(&key(3).public_key().fingerprint(HashAlg::Sha256).to_string()));
    assert!(error.to_string().contains("authorized_keys"));
    assert_eq!(lab.seen(|seen| (seen.logins, seen.passwords, seen.commands.len())), (0, 0, 0));
}

#[tokio::test]
async fn a_private_key_that_cannot_be_used_is_named_without_being_shown() {
    let lab = Lab::new(Manner::Runs, "root", "").await;
    let text = key(4).to_openssh(LineEnding::LF).unwrap();
    let damaged = text.replacen("b3BlbnNzaC1rZXk", "c3BlbnNzaC1rZXk", 1);
    lab.write_key(&damaged);
    let error = mint(&lab.host()).await.unwrap_err();
    assert!(matches!(error, SshError::Key(KeyFault::Unreadable)), "{error:?}");
    for line in damaged.lines().filter(|line| !line.starts_with('-')) {
        assert!(!everything(&error).contains(line));
    }
    fs::set_permissions(lab.folder.path().join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = mint(&lab.host()).await.unwrap_err();
    assert!(matches!(error, SshError::Secret(_)) && everything(&error).contains("chmod 0600"), "{error:?}");
    assert_eq!(lab.seen(|seen| seen.logins), 0);
}

#[tokio::test]
async fn what_kubeadm_complains_of_is_told_but_never_a_token() {
    let script = format!("echo {TOKEN}; echo 'cannot reach the API server with \"{TOKEN}\"' >&2; exit 1");
    let lab = Lab::new(Manner::Runs, "root", &script).await;
    let error = mint(&lab.host()).await.unwrap_err();
    let words = everything(&error);
    assert!(words.contains("exited with 1: cannot reach the API server"), "{words}");
    assert!(!words.contains("0123456789abcdef"), "{words}");
    assert!(error.passes(), "the error counts as temporary");
}

#[tokio::test]
async fn what_will_not_mend_itself_is_told_apart() {
    let cases = [("echo 'sudo: a password is required' >&2; exit 1", 1), ("exit 127", 127)];
    for (script, code) in cases {
        let lab = Lab::new(Manner::Runs, "root", script).await;
        let error = mint(&lab.host()).await.unwrap_err();
        let ended = matches!(&error, SshError::Command { end: CommandEnd::Exit(end), .. } if *end == code);
        assert!(ended && !error.passes(), "{error:?}");
    }
    let lab = Lab::new(Manner::Denies, "root", "").await;
    let error = mint(&lab.host()).await.unwrap_err();
    assert!(matches!(error, SshError::Command { end: CommandEnd::Denied, .. }) && !error.passes());
}

#[tokio::test]
async fn an_answer_without_one_whole_token_is_none() {
    let half = "abcdef.0123456789abcde";
    for script in [":", &format!("echo {half}"), &format!("echo {TOKEN}; echo {TOKEN}")] {
        let lab = Lab::new(Manner::Runs, "root", script).await;
        let error = mint(&lab.host()).await.unwrap_err();
        assert!(matches!(error, SshError::Answer { .. }), "{error:?}");
        assert!(!everything(&error).contains("0123456789abcde"), "{error:?}");
    }
}

#[tokio::test]
async fn endless_output_ends_the_operation() {
    let lab = Lab::new(Manner::Runs, "root", "head -c 200000 /dev/zero").await;
    let error = mint(&lab.host()).await.unwrap_err();
    assert!(error.to_string().contains("more output than expected"), "{error}");
}

#[tokio::test]
async fn a_host_that_hangs_has_its_limit() {
    let limit = Duration::from_millis(500);
    let hangs = Lab::new(Manner::Hangs, "root", "").await;
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mute = Ssh { port: silent.local_addr().unwrap().port(), ..hangs.settings("root") };
    for settings in [hangs.settings("root"), mute] {
        let error = mint(&TokenHost::new(settings, limit)).await.unwrap_err();
        assert!(matches!(error, SshError::Limit { .. }) && error.passes(), "{error:?}");
    }
}

#[tokio::test]
async fn a_host_that_is_away_may_come_back() {
    let lab = Lab::new(Manner::Runs, "root", "").await;
    let gone = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let settings = Ssh { port: gone, ..lab.settings("root") };
    let error = mint(&TokenHost::new(settings, PATIENCE)).await.unwrap_err();
    assert!(matches!(error, SshError::Unreachable { .. }) && error.passes(), "{error:?}");
}

#[tokio::test]
async fn a_token_is_deleted_by_its_id_once_or_twice() {
    let gone = r#"echo 'failed to delete bootstrap token "abcdef": secrets "bootstrap-token-abcdef" not found' >&2; exit 1"#;
    for script in ["echo 'bootstrap token \"abcdef\" deleted'", gone] {
        let lab = Lab::new(Manner::Runs, "root", script).await;
        lab.host().delete("abcdef").await.unwrap();
        assert_eq!(lab.arguments(), ["token", "delete", "abcdef"]);
    }
    let lab = Lab::new(Manner::Runs, "root", "echo 'no route' >&2; exit 1").await;
    assert!(lab.host().delete("abcdef").await.unwrap_err().to_string().contains("no route"));
    for wrong in ["", "-h", "abc;id", TOKEN] {
        let error = lab.host().delete(wrong).await.unwrap_err();
        assert!(matches!(error, SshError::NoId), "{error:?}");
        assert!(!everything(&error).contains("0123456789abcdef"));
    }
}

#[tokio::test]
async fn a_rehearsal_makes_no_token() {
    let lab = Lab::new(Manner::Runs, "root", &format!("echo '[dryrun] would create {TOKEN}'")).await;
    lab.host().rehearse().await.unwrap();
    assert_eq!(lab.arguments(), ["token", "create", "--ttl", "1s", "--dry-run"]);
    let lab = Lab::new(Manner::Runs, "root", "echo 'admin.conf: permission denied' >&2; exit 1").await;
    assert!(lab.host().rehearse().await.unwrap_err().to_string().contains("permission denied"));
}

#[tokio::test]
async fn check_says_whether_the_host_would_make_tokens() {
    let lab = Lab::new(Manner::Runs, "root", ":").await;
    let settings = lab.settings("root");
    let path = lab.folder.path().join("config.toml");
    let mut check = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    check.args(["check", "--for", "plan", "--config"]).arg(&path);
    let cases = [(1, 0, "`kubeadm token create` works (dry run)"), (9, 4, "has an unexpected host key")];
    for (seed, status, expected) in cases {
        let text = format!(
            "[bootstrap]\ntoken = \"ssh\"\nssh_host = \"127.0.0.1\"\nssh_port = {}\nssh_key_file = \"{}\"\n\
             ssh_host_key = \"{}\"\n\n[[pool]]\nname = \"workers\"\nmax = 3\ncores = 4\nmemory = \"8GiB\"\n",
            settings.port,
            lab.folder.path().join("key").display(),
            key(seed).public_key().to_openssh().unwrap(),
        );
        fs::write(&path, text).unwrap();
        let output = check.output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(expected), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{text}");
    }
}

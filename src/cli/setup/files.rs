//! The files that `setup` writes. Other users can never read the secrets. Existing credential files are kept.
//! An existing configuration is kept if it contains settings.

use std::fs::{self, Metadata, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::{Steps, kept, named};
use crate::cli::cluster;
use crate::cli::exit::Failure;
use kubernetes::{AccountToken, Cluster};

/// Configurations that `setup` overwrites, because they contain no settings of this cluster: the one that the
/// package installs, and the complete example.
const UNTOUCHED: [&str; 2] =
    [include_str!("../../../packaging/config.minimal.toml"), include_str!("../../../config.example.toml")];

/// The permission bits that other users need: `READ` on the configuration, and `PASS` on its folder.
const READ: u32 = 0o004;
const PASS: u32 = 0o001;

/// The paths of all files.
#[derive(Debug)]
pub(super) struct Places {
    folder: PathBuf,
    credentials: PathBuf,
    pub token: PathBuf,
    pub kubeconfig: PathBuf,
    pub ca: PathBuf,
}

impl Places {
    pub fn of(folder: &Path) -> Self {
        let credentials = folder.join("credentials");
        Self {
            folder: folder.to_owned(),
            token: credentials.join("pve-token"),
            kubeconfig: credentials.join("kubeconfig"),
            ca: credentials.join("pve-root-ca"),
            credentials,
        }
    }

    /// Whether the service looks for its credentials in this folder.
    pub fn are_the_units(&self) -> bool {
        cluster::is_the_units(&self.folder)
    }

    /// Returns the command that lets the service's user read the configuration, or `None` if that user can
    /// already read it. `setup` does not change the permissions itself, because an administrator may have
    /// restricted them on purpose to protect other files in the folder.
    pub fn opening(&self) -> Option<String> {
        let file = self.folder.join("config.toml");
        let shut = |path: &Path, right| fs::metadata(path).is_ok_and(|found| is_closed(&found, right));
        let mut places = vec![(self.folder.as_path(), PASS, "0755"), (&file, READ, "0644")];
        if let Some((base, Some(_))) = cluster::base_of(&file) {
            // The service's user must also be able to enter the parents of a named cluster's folder.
            let above = self.folder.ancestors().skip(1).take_while(|folder| folder.starts_with(&base));
            places.splice(
                0..0,
                above.map(|folder| (folder, PASS, "0755")).collect::<Vec<_>>().into_iter().rev(),
            );
        }
        let commands: Vec<String> = places
            .into_iter()
            .filter(|(path, right, _)| shut(path, *right))
            .map(|(path, _, mode)| format!("chmod {mode} {}", path.display()))
            .collect();
        (!commands.is_empty()).then(|| commands.join(" && "))
    }

    pub fn token_is_there(&self) -> bool {
        fs::metadata(&self.token).is_ok_and(|file| file.len() > 0)
    }

    /// Creates the folders for the files, except in a dry run.
    pub fn prepare(&self, dry: bool) -> Result<(), Failure> {
        if dry {
            return Ok(());
        }
        let made = folder(&self.folder, 0o755).and_then(|()| folder(&self.credentials, 0o700));
        made.map_err(|error| {
            Failure::Named(format!("cannot create {}", named(&self.credentials)), error.into())
        })
    }

    /// Writes the files, and returns the path of the configuration.
    pub fn write(
        &self,
        ca: &Path,
        secret: Option<SecretString>,
        account: Option<AccountToken>,
        cluster: &Cluster,
        configuration: &str,
        say: &Steps,
    ) -> Result<PathBuf, Failure> {
        self.prepare(false)?;
        if let Some(secret) = secret {
            replace(&self.token, secret.expose_secret(), 0o600)?;
            say.made(&named(&self.token))?;
        }
        if let Some(account) = account {
            self.write_kubeconfig(&kubeconfig(cluster.server(), &account), say)?;
        }
        if fs::symlink_metadata(&self.ca).is_ok() {
            kept(&named(&self.ca))?;
        } else {
            let text = fs::read_to_string(ca)
                .map_err(|error| Failure::Named(format!("cannot read {}", named(ca)), error.into()))?;
            replace(&self.ca, &text, 0o600)?;
            say.made(&named(&self.ca))?;
        }
        let file = self.folder.join("config.toml");
        match fs::read_to_string(&file) {
            Ok(text) if text == configuration => keep_open(&file, say)?,
            Ok(text) if !UNTOUCHED.contains(&text.as_str()) => {
                let proposal = self.folder.join("config.toml.proposed");
                replace(&proposal, configuration, 0o644)?;
                kept(&format!("{}; the proposal is in {}", named(&file), named(&proposal)))?;
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Failure::Named(format!("cannot read {}", named(&file)), error.into()));
            }
            _ => {
                replace(&file, configuration, 0o644)?;
                say.made(&named(&file))?;
            }
        }
        Ok(file)
    }

    /// Writes the kubeconfig, unless there is one. An existing kubeconfig may be for another server address,
    /// e.g. that of a load balancer, or for another user.
    fn write_kubeconfig(&self, text: &str, say: &Steps) -> Result<(), Failure> {
        let name = named(&self.kubeconfig);
        match fs::read_to_string(&self.kubeconfig) {
            Ok(there) if there == text => kept(&name),
            Ok(there) if !there.trim().is_empty() => kept(&format!(
                "{name}, which differs from what setup would write; to replace it, remove it and run setup again"
            )),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Failure::Named(format!("cannot read {name}"), error.into()))
            }
            _ => {
                replace(&self.kubeconfig, text, 0o600)?;
                say.made(&name)
            }
        }
    }
}

/// Creates a folder and its parents. The new folder gets this mode regardless of the umask; an existing
/// folder keeps its mode.
fn folder(path: &Path, mode: u32) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        folder(above, 0o755)?;
    }
    fs::DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Keeps the configuration that `setup` wrote, and makes it readable if a umask prevented that.
fn keep_open(file: &Path, say: &Steps) -> Result<(), Failure> {
    // Links are not followed: a link's target may belong to another user.
    if !fs::symlink_metadata(file).is_ok_and(|found| found.is_file() && is_closed(&found, READ)) {
        return kept(&named(file));
    }
    fs::set_permissions(file, Permissions::from_mode(0o644)).map_err(|error| {
        Failure::Named(format!("cannot make {} readable for the service", named(file)), error.into())
    })?;
    say.changed(&format!("{}: mode 0644, so that the service can read it", named(file)))
}

fn is_closed(found: &Metadata, right: u32) -> bool {
    keeps_out(found.mode(), found.gid(), right)
}

/// Whether the mode denies a right to the service's user, who is neither root nor in root's group. A right of
/// any other group is treated as granted, because an administrator may have made that group the service's.
fn keeps_out(mode: u32, group: u32, right: u32) -> bool {
    let by_group = group != 0 && mode & (right << 3) != 0;
    mode & right == 0 && !by_group
}

/// Writes a new file and renames it into place, so no reader sees it incomplete or with other permissions.
/// The mode is independent of the umask: the service's user has to read the configuration.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let written = (|| {
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    written.map_err(|error| Failure::Named(format!("cannot write {}", named(path)), error.into()))
}

fn kubeconfig(server: &str, account: &AccountToken) -> String {
    // JSON is valid YAML, and avoids YAML's pitfalls with quotes.
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pve-autoscaler",
        "clusters": [{ "name": "kubernetes", "cluster": {
            "server": server.trim_end_matches('/'),
            "certificate-authority-data": STANDARD.encode(&account.ca_pem),
        } }],
        "users": [{ "name": "pve-autoscaler", "user": { "token": account.token.expose_secret() } }],
        "contexts": [{ "name": "pve-autoscaler", "context": { "cluster": "kubernetes", "user": "pve-autoscaler" } }],
    });
    format!("{text:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_other_than_roots_may_pass_was_closed_on_purpose() {
        for (mode, group, closed) in [
            (0o755, 0, false),
            (0o711, 0, false),
            (0o700, 0, true),
            (0o700, 990, true),
            (0o750, 0, true),
            (0o750, 990, false),
        ] {
            assert_eq!(keeps_out(mode, group, PASS), closed, "{mode:o} of group {group}");
        }
        assert!(keeps_out(0o640, 0, READ) && !keeps_out(0o640, 990, READ));
    }
}

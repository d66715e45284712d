//! Where secrets are stored. The configuration only names the file or credential, and never contains the
//! secret itself.

use std::path::{Path, PathBuf};

use toml::Spanned;

use super::values::Checker;

/// The folder with the files that systemd passes to the service as credentials. Commands run by an
/// administrator read these files directly.
pub const CREDENTIALS: &str = "/etc/pve-autoscaler/credentials";

/// The folder for additional clusters on this host. It contains a subfolder for each cluster, with the
/// cluster's configuration and a folder `credentials`.
const CLUSTERS: &str = "clusters";

/// A systemd credential (`LoadCredential=`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// The folder that systemd reads the credential from. Commands that were not started by systemd read it
    /// directly from this folder.
    pub folder: PathBuf,
}

/// Returns the folder from which systemd reads the credentials of a configuration.
pub(super) fn folder_of(config: &Path) -> PathBuf {
    let named = config
        .parent()
        .filter(|own| own.parent().and_then(Path::file_name).is_some_and(|above| above == CLUSTERS));
    named.map_or_else(|| PathBuf::from(CREDENTIALS), |own| own.join("credentials"))
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A file that only its owner can read.
    File(PathBuf),
    /// A systemd credential.
    Credential(Credential),
}

/// Returns a help text that says where to put a secret, and how to name it in the configuration.
/// `KEY_credential` comes first, because the packaged unit's user cannot read root's files.
pub(super) fn own_file(key: &str) -> String {
    let loaded = match key {
        "token" => " (the unit loads `pve-token`)",
        "kubeconfig" => " (the unit loads `kubeconfig`)",
        "ssh_key" => " (the unit loads `ssh-key`)",
        "password" => " (the unit loads `bmc`)",
        "server_token" | "input" => " (the unit loads `bootstrap`)",
        _ => "",
    };
    format!(
        "put the secret into a file in `{CREDENTIALS}` with mode 0600, and name it with `{key}_credential`{loaded}; \
        to run without the unit, name any such file with `{key}_file`"
    )
}

/// Returns the source of a secret, which either `KEY_file` or `KEY_credential` names. Exactly one of the two
/// must be set.
pub(super) fn source(
    checker: &mut Checker,
    table: &Spanned<()>,
    key: &str,
    file: Option<&Spanned<String>>,
    credential: Option<&Spanned<String>>,
) -> Option<SecretSource> {
    match (file, credential) {
        (Some(file), None) => Some(SecretSource::File(checker.file(&format!("{key}_file"), file))),
        (None, Some(name)) => {
            Some(SecretSource::Credential(checker.credential(&format!("{key}_credential"), name)))
        }
        (Some(_), Some(name)) => {
            let title = format!("`{key}_file` and `{key}_credential` are both given");
            checker.wrong(title, name.span(), "only one of the two is allowed", "remove one of the two");
            None
        }
        (None, None) => {
            let title = format!("neither `{key}_file` nor `{key}_credential` is given");
            checker.wrong(title, table.span(), "missing from this table", &own_file(key));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_cluster_has_credentials_of_its_own() {
        for (config, expected) in [
            ("/etc/pve-autoscaler/config.toml", CREDENTIALS),
            (
                "/etc/pve-autoscaler/clusters/shop/config.toml",
                "/etc/pve-autoscaler/clusters/shop/credentials",
            ),
            ("config.toml", CREDENTIALS),
        ] {
            assert_eq!(folder_of(Path::new(config)), Path::new(expected), "{config}");
        }
    }
}

//! Reads secrets from the places that the settings name. A file that other users can access is refused.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use settings::{CREDENTIALS, Credential, SecretSource};
use thiserror::Error;

/// Why a secret cannot be read.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The current user has no permission to read the file.
    #[error(
        "this user is not permitted to read `{}`: for the packaged unit, put a root-only file into \
            `{CREDENTIALS}` and name it in a setting that ends in `_credential`",
        path.display()
    )]
    Denied {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Other users can read the file.
    #[error("others can read `{}` (mode {mode:o}): run `chmod 0600 {}`", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The credential is missing: systemd did not start this process, or the unit has no `LoadCredential=`.
    #[error(
        "the credential `{}` is missing: set `LoadCredential={}:/path/to/file` in the systemd unit; a \
            command that was not started by systemd reads `{}` instead",
        .0.name, .0.name, .0.folder.join(&.0.name).display()
    )]
    NoCredentials(Credential),
    /// The file is empty.
    #[error("`{}` is empty", .0.display())]
    Empty(PathBuf),
}

/// A place from which a secret can be read.
pub trait ReadSecret {
    /// Reads the secret, without surrounding white space.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is empty, or grants permissions to its group or to other
    /// users. A credential is an exception: its group may have read permission, because only the service can
    /// enter the credential's folder. Moreover, systemd grants access through an ACL, whose mask appears as
    /// the group's permissions.
    fn read(&self) -> Result<SecretString, SecretError>;
}

impl ReadSecret for Credential {
    fn read(&self) -> Result<SecretString, SecretError> {
        let handed = std::env::var_os("CREDENTIALS_DIRECTORY");
        credential(handed.as_deref().map(Path::new), self)
    }
}

impl ReadSecret for SecretSource {
    fn read(&self) -> Result<SecretString, SecretError> {
        match self {
            Self::File(path) => read(path, 0o077).map_err(named),
            Self::Credential(own) => own.read(),
        }
    }
}

/// Converts the error for a file that the settings name. If the current user may not read the file, the new
/// error says what to do.
fn named(error: SecretError) -> SecretError {
    match error {
        SecretError::Unreadable { path, source } if source.kind() == ErrorKind::PermissionDenied => {
            SecretError::Denied { path, source }
        }
        other => other,
    }
}

/// Reads a credential that systemd has passed. Outside the service, reads the file that systemd would pass.
/// Only root can enter that file's folder, but the file may be a link to a group-readable file elsewhere.
fn credential(handed: Option<&Path>, own: &Credential) -> Result<SecretString, SecretError> {
    match read(&handed.unwrap_or(&own.folder).join(&own.name), 0o037) {
        Err(SecretError::Unreadable { source, .. })
            if handed.is_none() && source.kind() == ErrorKind::NotFound =>
        {
            Err(SecretError::NoCredentials(own.clone()))
        }
        other => other,
    }
}

/// Reads a file, unless its mode grants any of the permissions in `refused`.
fn read(path: &Path, refused: u32) -> Result<SecretString, SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(unreadable)?.mode() & 0o777;
    if mode & refused != 0 {
        return Err(SecretError::Exposed { path: path.to_owned(), mode });
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let text = text.trim();
    if text.is_empty() { Err(SecretError::Empty(path.to_owned())) } else { Ok(SecretString::from(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_that_others_can_read_is_refused_with_the_way_out() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b" s3cret\n").unwrap();
        let source = SecretSource::File(file.path().to_owned());
        for (mode, readable) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o666, false)]
        {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            match source.read() {
                Ok(secret) => assert!(readable && secret.expose_secret() == "s3cret", "{mode:o}"),
                Err(error) => {
                    assert!(!readable && error.to_string().contains("chmod 0600"), "{mode:o}: {error}");
                    assert!(!format!("{error:?}").contains("s3cret"));
                }
            }
        }
    }

    #[test]
    fn a_credential_may_show_the_mask_of_its_access_list() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"s3cret").unwrap();
        for (mode, readable) in [(0o400, true), (0o440, true), (0o460, false), (0o444, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(file.path(), 0o037).is_ok(), readable, "{mode:o}");
        }
    }

    #[test]
    fn a_credential_is_what_systemd_hands_over_or_else_what_it_would() {
        let (handed, source) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
        fs::write(source.path().join("token"), "source").unwrap();
        fs::set_permissions(source.path().join("token"), fs::Permissions::from_mode(0o600)).unwrap();
        let ask = |handed: Option<&Path>, name: &str| {
            let own = Credential { name: name.to_owned(), folder: source.path().to_owned() };
            credential(handed, &own).map(|secret| secret.expose_secret().to_owned())
        };
        assert_eq!(ask(None, "token").unwrap(), "source");
        assert!(matches!(ask(None, "other"), Err(SecretError::NoCredentials(_))));
        // The service only reads credentials that systemd has passed to it.
        assert!(matches!(ask(Some(handed.path()), "token"), Err(SecretError::Unreadable { .. })));
        fs::write(handed.path().join("token"), "handed").unwrap();
        fs::set_permissions(handed.path().join("token"), fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(ask(Some(handed.path()), "token").unwrap(), "handed");
    }

    #[test]
    fn a_file_that_is_not_for_the_service_is_refused_with_the_way_out() {
        let path = PathBuf::from("/root/token");
        let failed = |kind: ErrorKind| SecretError::Unreadable { path: path.clone(), source: kind.into() };
        let said = named(failed(ErrorKind::PermissionDenied)).to_string();
        assert!(said.contains("`/root/token`") && said.contains("`_credential`"), "{said}");
        assert!(said.contains(CREDENTIALS), "{said}");
        assert!(matches!(named(failed(ErrorKind::NotFound)), SecretError::Unreadable { .. }));
    }

    #[test]
    fn missing_and_empty_files_are_named() {
        let missing = SecretSource::File(PathBuf::from("/nonexistent/token")).read().unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/token"));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(SecretSource::File(file.path().to_owned()).read(), Err(SecretError::Empty(_))));
    }

    #[test]
    fn a_credential_of_a_further_cluster_is_read_in_its_own_folder() {
        let text = "[kubernetes]\nkubeconfig_credential = \"kubeconfig\"\n";
        let parsed = |file: &str| settings::parse(file, text, settings::Needs::Plan).unwrap();
        let said = parsed("/nonexistent/clusters/shop/config.toml").kubernetes.unwrap().kubeconfig.read();
        let said = said.unwrap_err().to_string();
        assert!(said.contains("`/nonexistent/clusters/shop/credentials/kubeconfig`"), "{said}");
    }
}

//! Reading the configuration.

use std::path::Path;

use settings::{Config, Needs, Report, parse};

/// Reads and checks a configuration file.
///
/// # Errors
/// Returns a printable report about everything that is wrong with the file.
pub fn load(path: &Path, needs: Needs) -> Result<Config, Report> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&name, &text, needs),
        Err(error) => Err(Report::unreadable(&name, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_of_text_is_told_apart() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        let cases = [
            (folder.path(), "name a file in this directory"),
            (path.as_path(), "not UTF-8 text"),
            (Path::new("/nonexistent/c.toml"), "config.example.toml"),
        ];
        for (path, expected) in cases {
            let report = load(path, Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "{report}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let report = load(Path::new("/nonexistent/c.toml"), Needs::Plan).unwrap_err().plain();
        assert!(report.contains("cannot read `/nonexistent/c.toml`"), "{report}");
    }
}

//! The operator's script that turns a VM into a node.

use toml::Spanned;

use super::super::secret::{self, SecretSource};
use super::super::values::Checker;
use super::Written;

/// A script for the guest's `/bin/sh`, written by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The script, with variables for the machine's facts (see [`crate::MachineFacts`]).
    pub script: String,
    /// The source of the script's standard input. Secrets belong in this input, not in the script.
    pub input: Option<SecretSource>,
}

/// Maximum length of the script, in bytes. Proxmox VE passes the script to the guest agent as one argument.
const LONGEST: usize = 32 * 1024;

impl Written {
    pub(super) fn command(&self, table: &Spanned<()>, checker: &mut Checker) -> Option<Command> {
        let (file, credential) = (self.input_file.as_ref(), self.input_credential.as_ref());
        let input = match (file, credential) {
            (None, None) => Some(None),
            _ => secret::source(checker, table, "input", file, credential).map(Some),
        };
        let Some(script) = &self.command else {
            let help = "set `command` to the script that joins a machine to the cluster, enclosed in \
                `'''`";
            let title = "`command` is missing".to_owned();
            checker.wrong(title, table.span(), "needed for `method = \"command\"`", help);
            return None;
        };
        let text = script.get_ref();
        if text.trim().is_empty() {
            checker.wrong(
                "`command` is empty".to_owned(),
                script.span(),
                "expected a script for `/bin/sh`",
                "",
            );
        } else if !text.is_ascii() {
            let title = "`command` contains non-ASCII characters".to_owned();
            checker.wrong(title, script.span(), "the guest agent accepts only ASCII", "");
        } else if text.len() > LONGEST {
            let title = format!("`command` is longer than {LONGEST} bytes");
            let help = "put the script into the template, and call it from `command`";
            checker.wrong(title, script.span(), "too long for the guest agent", help);
        }
        Some(Command { script: text.clone(), input: input? })
    }
}

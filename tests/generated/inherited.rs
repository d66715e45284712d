//! The page about what a machine inherits from its template, generated from the daemon's rules.

use std::fmt::Write;

use pve_autoscaler::machines::inherited::{ALL, Rule};

const ABOVE: &str = "\
# What a machine inherits from its template

A clone in Proxmox VE gets almost every option of its template. The daemon has a rule for each option. `check` applies these rules to templates, and the daemon applies them to each machine that it configures.
If an option of the template changes, this counts as drift (`[replace]`) only if the last column says \"yes\". This page is generated from the rules.

";

pub fn page() -> String {
    let mut page = ABOVE.to_owned();
    for (rule, about) in [
        (Rule::Set, "each machine gets its own value, if there is one to set"),
        (Rule::Removed, "machines do not keep the option"),
        (Rule::Refused, "no machine is cloned from a template with certain values of the option"),
        (Rule::Checked, "the option stays as it is in the template, and `check` examines the consequences"),
        (Rule::Left, "the option stays as it is in the template, or clones do not get it"),
    ] {
        let _ = writeln!(page, "* **{}**: {about}", rule.name());
    }
    page.push_str("\n| Option | Rule | Why | Drift |\n|---|---|---|---|\n");
    for one in ALL {
        let drift = if one.tells { "yes" } else { "no" };
        let _ = writeln!(page, "| `{}` | {} | {} | {drift} |", one.option, one.rule.name(), one.why);
    }
    page
}

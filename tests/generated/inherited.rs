//! The page about what a machine inherits from its template, generated from the daemon's rules.

use std::fmt::Write;

use pve_autoscaler::machines::inherited::{ALL, Rule};

const ABOVE: &str = "\
# What a machine inherits from its template

A clone in Proxmox VE gets almost every option of its template. For each option there is a rule. `check` examines templates by these rules, and the daemon configures machines by them.
A change of the template counts as drift (`[replace]`) only if the last column contains `yes`. This page is generated from the rules in the code.

";

pub fn page() -> String {
    let mut page = ABOVE.to_owned();
    for (rule, about) in [
        (Rule::Set, "each machine gets a value of its own, if there is one to set"),
        (Rule::Removed, "a machine does not keep it"),
        (Rule::Refused, "no machine is created from a template that has certain values of it"),
        (Rule::Asked, "it stays as it is in the template, and `check` examines the consequences"),
        (Rule::Left, "it stays as it is in the template, or clones do not get it"),
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

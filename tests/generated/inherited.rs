//! The page of what a machine inherits of its template, from the rules that the daemon goes by.

use std::fmt::Write;

use pve_autoscaler::machines::inherited::{ALL, Rule};

const ABOVE: &str = "\
# What a machine inherits of its template

A clone in Proxmox VE gets every option of its template but a few. For each option there is a rule; `check` looks at templates by them, machines are configured by them,
and a change of the template counts as drift (`[replace]`) only where the last column says so. The page is made from the rules themselves.

";

pub fn page() -> String {
    let mut page = ABOVE.to_owned();
    for (rule, about) in [
        (Rule::Set, "each machine gets a value of its own, if there is one to set"),
        (Rule::Removed, "a machine does not keep it"),
        (Rule::Refused, "no machine is made of a template with certain values of it"),
        (Rule::Asked, "it stays as it is in the template, and `check` looks at what follows from it"),
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

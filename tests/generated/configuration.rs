//! Section 5: the configuration, from the example that explains it.

use std::fmt::Write;

use super::roff;

/// The page.
pub fn page(example: &str) -> String {
    let mut out = format!(
        ".TH PVE\\-AUTOSCALER.TOML 5 \"\" \"pve\\-autoscaler {}\" \"File Formats\"\n\
         .SH NAME\npve\\-autoscaler.toml \\- configuration of pve\\-autoscaler\n\
         .SH SYNOPSIS\n/etc/pve\\-autoscaler/config.toml\n\
         .SH DESCRIPTION\n\
         A TOML file. Each setting below is shown with its default, or with an example if it has none.\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut lines = example.lines().peekable();
    // How the example marks its lines means nothing here.
    while lines.next_if(|line| !line.starts_with("# Durations")).is_some() {}
    let mut words: Vec<&str> = Vec::new();
    let mut begun = false;
    while let Some(line) = lines.next() {
        if line.is_empty() {
            if !begun {
                paragraph(&mut words, &mut out);
                out.push_str(".SH TOP LEVEL\n");
                begun = true;
            }
            continue;
        }
        let Some((setting, _)) = setting(line) else {
            words.extend(line.strip_prefix("# "));
            continue;
        };
        if setting.starts_with('[') {
            let _ = writeln!(out, ".SH {}", roff::plain(setting));
            paragraph(&mut words, &mut out);
            continue;
        }
        // All settings that follow one text belong to it.
        let mut tag = ".TP";
        let mut rest = Some(line);
        while let Some((setting, other)) = rest.and_then(self::setting) {
            let way = if other { "or: " } else { "" };
            let _ = writeln!(out, "{tag}\n{way}\\fB{}\\fR", roff::plain(setting));
            tag = ".TQ";
            rest = lines.next_if(|next| self::setting(next).is_some_and(|(next, _)| !next.starts_with('[')));
        }
        let _ = writeln!(out, "{}", joined(&mut words));
    }
    out.push_str(
        ".SH FILES\n\
         .TP\n\\fB/etc/pve\\-autoscaler/config.toml\\fR\nThe configuration. It holds no secrets and may be read by everybody.\n\
         .TP\n\\fB/etc/pve\\-autoscaler/credentials/\\fR\n\
         Where credentials are, one file each, mode 0600, in a folder of mode 0700 that is root\\(aqs: systemd hands\n\
         \\fBpve\\-token\\fR, \\fBkubeconfig\\fR and, if they are there, \\fBssh\\-key\\fR, \\fBbootstrap\\fR, \\fBbmc\\fR and \\fBpve\\-root\\-ca\\fR to the service. A\n\
         change of them needs a restart.\n\
         .SH SEE ALSO\npve\\-autoscaler(8), pve\\-autoscaler\\-check(8), systemd.exec(5)\n",
    );
    out
}

/// A setting or the name of a table, and whether it is another way of the one above.
fn setting(line: &str) -> Option<(&str, bool)> {
    // A further table is no other way of the one above.
    for mark in ["#: ", "#also| ", "#grow| "] {
        if let Some(setting) = line.strip_prefix(mark) {
            return Some((setting, false));
        }
    }
    for mark in ["#| ", "#k3s| ", "#command| ", "#none| ", "#seed| ", "#redfish| ", "#machine| "] {
        if let Some(setting) = line.strip_prefix(mark) {
            return Some((setting, true));
        }
    }
    (!line.is_empty() && !line.starts_with('#')).then_some((line, false))
}

fn joined(words: &mut Vec<&str>) -> String {
    roff::text(&std::mem::take(words).join(" "))
}

fn paragraph(words: &mut Vec<&str>, out: &mut String) {
    if !words.is_empty() {
        let _ = writeln!(out, "{}", joined(words));
    }
}

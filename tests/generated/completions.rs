//! Completion of names, which clap's generators do not support: only the running daemon knows the names. The
//! scripts get them with the hidden command `names`.

use clap_complete::Shell;

/// Commands whose argument is a name, each with the kind of names.
const ARGUMENTS: [(&str, &str); 5] =
    [("retire", "nodes"), ("pin", "nodes"), ("unpin", "nodes"), ("retry", "places"), ("history", "all")];
/// Options whose value is a name, each with the kind of names.
const OPTIONS: [(&str, &str); 3] = [("cluster", "clusters"), ("node", "nodes"), ("pool", "pools")];

/// Returns the script, extended so that it also completes names.
pub fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => bash(script),
        Shell::Zsh => zsh(script),
        Shell::Fish => fish(script),
        other => panic!("no completion of names for {other}"),
    }
}

const BASH: &str = "\
_pve_autoscaler_names() {
    [[ ${COMP_WORDS[COMP_CWORD]} == -* ]] || pve-autoscaler names \"$1\" -- \"${COMP_WORDS[@]:0:COMP_CWORD}\" 2>/dev/null
}

";

fn bash(script: &str) -> String {
    let mut out = script.to_owned();
    for (command, kind) in ARGUMENTS {
        let case = format!("\n        pve__autoscaler__subcmd__{command})\n            opts=\"");
        let (before, rest) = out.split_once(&case).unwrap_or_else(|| panic!("no case for {command}"));
        let (opts, after) = rest.split_once('"').unwrap();
        out = format!("{before}{case}{opts} $(_pve_autoscaler_names {kind})\"{after}");
    }
    for (option, kind) in OPTIONS {
        let files = format!("--{option})\n                    COMPREPLY=($(compgen -f \"${{cur}}\"))");
        assert!(out.contains(&files), "no case for --{option}");
        let names = files.replace(
            "compgen -f \"${cur}\"",
            &format!("compgen -W \"$(_pve_autoscaler_names {kind})\" -- \"${{cur}}\""),
        );
        out = out.replace(&files, &names);
    }
    BASH.to_owned() + &out
}

const ZSH: &str = "
_pve_autoscaler_names() {
    local -a names
    names=(${(f)\"$(pve-autoscaler names $1 -- ${(z)LBUFFER} 2>/dev/null)\"})
    compadd -a names
}
";

fn zsh(script: &str) -> String {
    let mut out = String::new();
    let mut command = "";
    for line in script.lines() {
        if let Some(name) = line.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            command = name;
        }
        let option = OPTIONS.iter().find(|(option, _)| line.starts_with(&format!("'--{option}=[")));
        let argument = ARGUMENTS.iter().find(|(one, _)| line.starts_with("':") && *one == command);
        match option.or(argument) {
            Some((_, kind)) => {
                let names = format!(":{{_pve_autoscaler_names {kind}}}' \\");
                out.push_str(&line.replace(":_default' \\", &names));
            }
            None => out.push_str(line),
        }
        out.push('\n');
        if line == "autoload -U is-at-least" {
            out.push_str(ZSH);
        }
    }
    assert!(out.contains("names()") && out.contains("names places}") && out.contains("names clusters}"));
    out
}

fn fish(script: &str) -> String {
    use std::fmt::Write;
    let asked = |kind: &str| format!("(pve-autoscaler names {kind} -- (commandline -opc) 2>/dev/null)");
    let mut out = script.to_owned();
    for (command, kind) in ARGUMENTS {
        let when = format!("-n \"__fish_pve_autoscaler_using_subcommand {command}\"");
        assert!(out.contains(&when), "no completions for {command}");
        writeln!(out, "complete -c pve-autoscaler {when} -f -a \"{}\"", asked(kind)).unwrap();
    }
    for (option, kind) in OPTIONS {
        let when = match option {
            "node" => " -n \"__fish_pve_autoscaler_using_subcommand explain\"",
            "pool" => " -n \"__fish_pve_autoscaler_using_subcommand adopt\"",
            _ => "",
        };
        writeln!(out, "complete -c pve-autoscaler{when} -l {option} -x -a \"{}\"", asked(kind)).unwrap();
    }
    out
}

//! Simulates the programs that bootstrap scripts run in a template with kubeadm or K3s.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use super::{
    Finished, Guest, k3s, kubeadm,
    shell::{self, Output, Shell},
};

const PROGRAMS: &[&str] = &[
    "sh",
    "true",
    "false",
    "cat",
    "echo",
    "printf",
    "mkdir",
    "mv",
    "rm",
    "test",
    "[",
    "sleep",
    "systemctl",
    "kubeadm",
    "journalctl",
    "hostname",
    "timeout",
    "id",
    "command",
    "head",
    "tail",
    "flock",
    "touch",
    "chmod",
    "sync",
    "cloud-init",
    "uname",
    "date",
    "nproc",
];

/// Whether the template contains a program.
pub fn exists(name: &str) -> bool {
    PROGRAMS.contains(&name)
}

/// Runs a program with arguments as the guest agent does.
pub async fn run(guest: &Guest, command: Vec<String>, stdin: Vec<u8>) -> Finished {
    // The command is passed as the shell's positional parameters, so the shell does not interpret it.
    let arguments = std::iter::once("sh".to_owned()).chain(command).collect();
    shell::run(guest, "\"$@\"", arguments, stdin).await
}

/// Runs one program within a shell and returns its status.
pub(super) fn call<'s>(
    shell: &'s mut Shell,
    command: Vec<String>,
    output: &'s mut Output,
) -> BoxFuture<'s, i32> {
    Box::pin(async move {
        let name = command[0].rsplit('/').next().unwrap_or_default().to_owned();
        if !shell.guest.has_program(&command[0]) {
            output.err.extend(format!("sh: 1: {}: not found\n", command[0]).bytes());
            return 127;
        }
        let words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
        match name.as_str() {
            "sh" => nested_shell(shell, &command, output).await,
            "false" => 1,
            "cat" | "head" | "tail" => read(shell, &name, &words, output),
            "echo" => {
                let (newline, words) = match words.split_first() {
                    Some((&"-n", rest)) => ("", rest),
                    _ => ("\n", words.as_slice()),
                };
                output.out.extend(format!("{}{newline}", words.join(" ")).bytes());
                0
            }
            "printf" => printf(&words, output),
            "test" | "[" => test(shell, &words, output),
            "mv" => rename(shell, &words, output),
            "rm" => remove(shell, &words, output),
            "touch" => {
                for path in words.iter().filter(|word| !word.starts_with('-')) {
                    let content = shell.guest.read_file(path).unwrap_or_default();
                    shell.guest.write_file(path, content);
                }
                0
            }
            "sleep" => {
                let seconds = words.first().and_then(|text| text.trim_end_matches('s').parse().ok());
                let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                tokio::time::sleep(time.unwrap_or_default()).await;
                i32::from(time.is_none())
            }
            "systemctl" => systemctl(shell, &words, output).await,
            "kubeadm" => kubeadm::run(shell, &words, output).await,
            "journalctl" => {
                output.out.extend(shell.guest.read_file(k3s::JOURNAL).unwrap_or_default());
                0
            }
            "hostname" => {
                output.out.extend(format!("{}\n", shell.guest.identity().hostname).bytes());
                0
            }
            "nproc" => {
                output.out.extend(format!("{}\n", shell.guest.cpus()).bytes());
                0
            }
            "date" => {
                // A program that sets the time is assumed to set the correct time.
                if words.contains(&"-s") {
                    shell.guest.set_clock();
                }
                0
            }
            "uname" => {
                output.out.extend(b"Linux\n");
                0
            }
            "id" => {
                output.out.extend(if words == ["-u"] {
                    &b"0\n"[..]
                } else {
                    b"uid=0(root) gid=0(root) groups=0(root)\n"
                });
                0
            }
            "cloud-init" => {
                output.out.extend(b"status: done\n");
                0
            }
            "command" => match words.as_slice() {
                ["-v", program] if shell.guest.has_program(program) => {
                    output.out.extend(format!("/usr/bin/{program}\n").bytes());
                    0
                }
                _ => 127,
            },
            "timeout" => limited(shell, &command[1..], output).await,
            "flock" => flock(shell, &command[1..], output).await,
            // Directories and modes are not part of the simulated file system.
            _ => 0,
        }
    })
}

async fn nested_shell(shell: &mut Shell, command: &[String], output: &mut Output) -> i32 {
    let Some(at) = command.iter().position(|word| word.starts_with('-') && word.ends_with('c')) else {
        output.err.extend(b"sh: 0: this guest's shell supports only sh -c\n");
        return 2;
    };
    let flags = command[1..=at].concat().replace(['-', 'c'], "");
    let script = command.get(at + 1).map_or("", String::as_str);
    let script = if flags.is_empty() { script.to_owned() } else { format!("set -{flags}\n{script}") };
    let arguments = command.get(at + 2..).map_or_else(Vec::new, <[String]>::to_vec);
    let stdin = std::mem::take(&mut shell.stdin);
    let finished = shell::run(&shell.guest, &script, arguments, stdin).await;
    output.out.extend(finished.out);
    output.err.extend(finished.err);
    finished.code
}

fn read(shell: &mut Shell, name: &str, words: &[&str], output: &mut Output) -> i32 {
    let mut count = None;
    let mut lines = 10;
    let mut paths = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-c" => count = words.next().and_then(|text| text.parse::<usize>().ok()),
            "-n" => lines = words.next().and_then(|text| text.parse().ok()).unwrap_or(lines),
            path => paths.push(path),
        }
    }
    if paths.is_empty() {
        paths.push("-");
    }
    let mut code = 0;
    for path in paths {
        let content = match path {
            "-" | "/dev/stdin" => Some(std::mem::take(&mut shell.stdin)),
            path => shell.guest.read_file(path),
        };
        let Some(content) = content else {
            output.err.extend(format!("{name}: {path}: No such file or directory\n").bytes());
            code = 1;
            continue;
        };
        match (name, count) {
            ("cat", _) => output.out.extend(content),
            ("head", Some(count)) => output.out.extend(content.iter().take(count)),
            ("tail", Some(count)) => {
                output.out.extend(content.iter().skip(content.len().saturating_sub(count)));
            }
            (name, None) => {
                let all: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
                let skip = if name == "tail" { all.len().saturating_sub(lines) } else { 0 };
                output.out.extend(all.into_iter().skip(skip).take(lines).flatten());
            }
            _ => {}
        }
    }
    code
}

fn printf(words: &[&str], output: &mut Output) -> i32 {
    let Some((format, mut arguments)) = words.split_first() else { return 2 };
    let format = format.replace("\\n", "\n").replace("\\t", "\t");
    loop {
        let mut parts = format.split("%s");
        output.out.extend(parts.next().unwrap_or_default().bytes());
        for part in parts {
            if let Some((first, rest)) = arguments.split_first() {
                output.out.extend(first.bytes());
                arguments = rest;
            }
            output.out.extend(part.bytes());
        }
        if arguments.is_empty() || !format.contains("%s") {
            return 0;
        }
    }
}

fn test(shell: &Shell, words: &[&str], output: &mut Output) -> i32 {
    let words = words.strip_suffix(&["]"]).unwrap_or(words);
    let file = |path: &str| shell.guest.read_file(path);
    let truth = match words {
        ["!", rest @ ..] => return i32::from(test(shell, rest, output) == 0),
        ["-e" | "-f" | "-r" | "-w", path] => file(path).is_some(),
        ["-s", path] => file(path).is_some_and(|content| !content.is_empty()),
        ["-d", path] => matches!(*path, "/" | "/run" | "/etc" | "/tmp" | "/etc/kubernetes" | "/var/lib"),
        ["-x", path] => shell.guest.has_program(path),
        ["-n", text] | [text] => !text.is_empty(),
        ["-z", text] => text.is_empty(),
        [left, "=", right] => left == right,
        [left, "!=", right] => left != right,
        [left, operator @ ("-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"), right] => {
            let (Ok(left), Ok(right)) = (left.parse::<i64>(), right.parse::<i64>()) else {
                output.err.extend(b"sh: 1: [: Illegal number\n");
                return 2;
            };
            match *operator {
                "-eq" => left == right,
                "-ne" => left != right,
                "-lt" => left < right,
                "-le" => left <= right,
                "-gt" => left > right,
                _ => left >= right,
            }
        }
        [] => false,
        _ => {
            output.err.extend(
                format!("sh: 1: [: {} is not supported by this guest's test command\n", words.join(" "))
                    .bytes(),
            );
            return 2;
        }
    };
    i32::from(!truth)
}

fn rename(shell: &Shell, words: &[&str], output: &mut Output) -> i32 {
    let paths: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let [from, to] = paths.as_slice() else { return 1 };
    let Some(content) = shell.guest.read_file(from) else {
        output.err.extend(format!("mv: cannot stat '{from}': No such file or directory\n").bytes());
        return 1;
    };
    shell.guest.write_file(to, content);
    shell.guest.remove_file(from);
    0
}

fn remove(shell: &Shell, words: &[&str], output: &mut Output) -> i32 {
    let force = words.iter().any(|word| word.starts_with('-') && word.contains('f'));
    let mut code = 0;
    for path in words.iter().filter(|word| !word.starts_with('-')) {
        if !shell.guest.remove_file(path) && !force {
            output.err.extend(format!("rm: cannot remove '{path}': No such file or directory\n").bytes());
            code = 1;
        }
    }
    code
}

async fn systemctl(shell: &Shell, words: &[&str], output: &mut Output) -> i32 {
    match words {
        ["is-system-running", rest @ ..] => {
            if rest.contains(&"--wait") {
                tokio::time::sleep_until(shell.guest.settles_at()).await;
            }
            let state = shell.guest.system_state();
            output.out.extend(format!("{state}\n").bytes());
            i32::from(state != "running")
        }
        ["restart", "kubelet" | "k3s-agent"] if shell.guest.joined() => {
            shell.guest.restart_kubelet();
            0
        }
        ["start" | "restart", "k3s-agent"] => {
            k3s::restart(&shell.guest);
            0
        }
        ["is-failed", rest @ ..] if rest.contains(&"k3s-agent") => {
            i32::from(shell.guest.read_file(k3s::FAILED).is_none())
        }
        ["is-active", rest @ ..] => {
            let active =
                !rest.contains(&"kubelet") && !rest.contains(&"kubelet.service") || shell.guest.joined();
            if !rest.contains(&"--quiet") && !rest.contains(&"-q") {
                output.out.extend(if active { &b"active\n"[..] } else { b"activating\n" });
            }
            if active { 0 } else { 3 }
        }
        _ => 0,
    }
}

async fn limited(shell: &mut Shell, words: &[String], output: &mut Output) -> i32 {
    let mut words = words.iter().skip_while(|word| word.starts_with('-'));
    let seconds = words.next().and_then(|text| text.trim_end_matches('s').parse::<f64>().ok());
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let command: Vec<String> = words.cloned().collect();
    match limit {
        Some(limit) if !command.is_empty() => {
            tokio::time::timeout(limit, call(shell, command, output)).await.unwrap_or(124)
        }
        _ => 125,
    }
}

/// `flock [-n] [-x] [-w SECONDS] [-E CODE] FILE command…`, or with a descriptor that `exec N>FILE` opened.
async fn flock(shell: &mut Shell, words: &[String], output: &mut Output) -> i32 {
    let mut wait = None;
    let mut conflict = 1;
    let mut words = words.iter();
    let mut rest: Vec<String> = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-n" | "--nonblock" => wait = Some(Duration::ZERO),
            "-w" => wait = words.next().and_then(|text| text.parse().ok()).map(Duration::from_secs),
            "-E" => conflict = words.next().and_then(|text| text.parse().ok()).unwrap_or(1),
            "-x" | "-e" => {}
            word => {
                rest.push(word.to_owned());
                rest.extend(words.by_ref().cloned());
            }
        }
    }
    let Some((target, command)) = rest.split_first() else { return 64 };
    let descriptor = target.parse::<u32>().ok();
    let path = match descriptor {
        Some(number) => {
            if let Some(path) = shell.descriptors.get(&number) {
                path.clone()
            } else {
                output.err.extend(format!("flock: {number}: Bad file descriptor\n").bytes());
                return 65;
            }
        }
        None => target.clone(),
    };
    let lock = shell.guest.file_lock(&path);
    let guard = match wait {
        None => lock.lock_owned().await,
        Some(time) if time.is_zero() => match lock.try_lock_owned() {
            Ok(guard) => guard,
            Err(_) => return conflict,
        },
        Some(time) => match tokio::time::timeout(time, lock.lock_owned()).await {
            Ok(guard) => guard,
            Err(_) => return conflict,
        },
    };
    let command: Vec<String> = match command {
        [flag, script] if flag == "-c" => ["sh", "-c", script].map(String::from).to_vec(),
        command => command.to_vec(),
    };
    if descriptor.is_some() || command.is_empty() {
        shell.held.push(Arc::new(guard));
        return 0;
    }
    let code = call(shell, command, output).await;
    drop(guard);
    code
}

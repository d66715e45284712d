//! Runs the commands that `syntax` parsed, with the guest's files and programs. Time is virtual.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

use super::{
    Finished, Guest, programs,
    syntax::{Command, Piece, Redirect, Term, Word, parse},
};

/// One shell process.
#[derive(Clone)]
pub struct Shell {
    pub(super) guest: Guest,
    variables: BTreeMap<String, String>,
    arguments: Vec<String>,
    exit_on_error: bool,
    refuse_unset: bool,
    last: i32,
    pub(super) stdin: Vec<u8>,
    /// The files that file descriptors above 2 refer to.
    pub(super) descriptors: BTreeMap<u32, String>,
    pub(super) held: Vec<Arc<OwnedMutexGuard<()>>>,
    output: BTreeMap<u32, String>,
}

/// How a command ended.
pub(super) enum Flow {
    /// Continue with this status.
    Status(i32),
    /// End the innermost loop.
    Break,
    /// End the shell with this status.
    Exit(i32),
}

impl Flow {
    fn code(&self) -> i32 {
        match self {
            Self::Status(code) | Self::Exit(code) => *code,
            Self::Break => 0,
        }
    }
}

/// The output of commands.
#[derive(Default)]
pub(super) struct Output {
    pub(super) out: Vec<u8>,
    pub(super) err: Vec<u8>,
}

/// Runs `sh -c script name arguments…`.
pub(super) async fn run(guest: &Guest, script: &str, arguments: Vec<String>, stdin: Vec<u8>) -> Finished {
    let mut shell = Shell {
        guest: guest.clone(),
        variables: BTreeMap::from([(
            "PATH".into(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
        )]),
        arguments,
        exit_on_error: false,
        refuse_unset: false,
        last: 0,
        stdin,
        descriptors: BTreeMap::new(),
        held: Vec::new(),
        output: BTreeMap::new(),
    };
    let mut output = Output::default();
    let code = match parse(script) {
        Err(text) => {
            output.err.extend(format!("sh: 1: {text}\n").bytes());
            2
        }
        Ok(commands) => shell.list(&commands, false, &mut output).await.code(),
    };
    Finished { code, out: output.out, err: output.err }
}

impl Shell {
    fn list<'s>(
        &'s mut self,
        commands: &'s [Command],
        tested: bool,
        output: &'s mut Output,
    ) -> BoxFuture<'s, Flow> {
        Box::pin(async move {
            let mut status = 0;
            for command in commands {
                match self.command(command, tested, output).await {
                    flow @ (Flow::Exit(_) | Flow::Break) => return flow,
                    Flow::Status(code) => status = code,
                }
            }
            Flow::Status(status)
        })
    }

    /// Runs a command. If `tested`, the caller handles a failure, so `set -e` does not apply.
    fn command<'s>(
        &'s mut self,
        command: &'s Command,
        tested: bool,
        output: &'s mut Output,
    ) -> BoxFuture<'s, Flow> {
        Box::pin(async move {
            let flow = match command {
                Command::And(left, right) => match self.command(left, true, output).await {
                    Flow::Status(0) => return self.command(right, tested, output).await,
                    flow => return flow,
                },
                Command::Or(left, right) => match self.command(left, true, output).await {
                    Flow::Status(code) if code != 0 => return self.command(right, tested, output).await,
                    flow => return flow,
                },
                Command::Not(inner) => match self.command(inner, true, output).await {
                    Flow::Status(code) => {
                        self.last = i32::from(code == 0);
                        return Flow::Status(self.last);
                    }
                    flow @ (Flow::Exit(_) | Flow::Break) => return flow,
                },
                Command::Pipe(left, right) => {
                    let mut feed = Output::default();
                    let mut first = self.clone();
                    first.command(left, true, &mut feed).await;
                    output.err.append(&mut feed.err);
                    let mut second = self.clone();
                    second.stdin = feed.out;
                    Flow::Status(second.command(right, true, output).await.code())
                }
                Command::If(branches, otherwise) => {
                    for (condition, body) in branches {
                        match self.list(condition, true, output).await {
                            flow @ (Flow::Exit(_) | Flow::Break) => return flow,
                            Flow::Status(0) => return self.list(body, tested, output).await,
                            Flow::Status(_) => {}
                        }
                    }
                    return self.list(otherwise, tested, output).await;
                }
                Command::While(until, condition, body) => {
                    return self.repeat(*until, condition, body, tested, output).await;
                }
                Command::For(name, words, body) => {
                    return self.each(name, words, body, tested, output).await;
                }
                Command::Case(subject, arms) => {
                    let subject = match self.expand(subject, output).await {
                        Ok(words) => words.join(" "),
                        Err(code) => return Flow::Exit(code),
                    };
                    for (patterns, body) in arms {
                        for pattern in patterns {
                            let pattern = self.expand(pattern, output).await.unwrap_or_default().join(" ");
                            if matches_pattern(&pattern, &subject) {
                                return self.list(body, tested, output).await;
                            }
                        }
                    }
                    Flow::Status(0)
                }
                Command::Group(body, redirects) => self.grouped(body, redirects, tested, output).await,
                Command::Subshell(body, redirects) => {
                    let mut shell = self.clone();
                    Flow::Status(shell.grouped(body, redirects, tested, output).await.code())
                }
                Command::Simple(assignments, words, redirects) => {
                    self.simple(assignments, words, redirects, output).await
                }
            };
            self.last = flow.code();
            match flow {
                Flow::Status(code) if code != 0 && self.exit_on_error && !tested => Flow::Exit(code),
                flow => flow,
            }
        })
    }

    async fn repeat(
        &mut self,
        until: bool,
        condition: &[Command],
        body: &[Command],
        tested: bool,
        output: &mut Output,
    ) -> Flow {
        loop {
            match self.list(condition, true, output).await {
                Flow::Exit(code) => return Flow::Exit(code),
                Flow::Break => return Flow::Status(0),
                Flow::Status(code) if (code == 0) == until => return Flow::Status(0),
                Flow::Status(_) => {}
            }
            match self.list(body, tested, output).await {
                Flow::Exit(code) => return Flow::Exit(code),
                Flow::Break => return Flow::Status(0),
                Flow::Status(_) => {}
            }
            // A shell loop that never sleeps must not block the simulation.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Runs a `for` loop. Words with `*` expand to the matching files, or to themselves if no file matches.
    async fn each(
        &mut self,
        name: &str,
        words: &[Word],
        body: &[Command],
        tested: bool,
        output: &mut Output,
    ) -> Flow {
        let mut values = Vec::new();
        for word in words {
            let expanded = match self.expand(word, output).await {
                Ok(expanded) => expanded,
                Err(code) => return Flow::Exit(code),
            };
            for text in expanded {
                let found = if text.contains('*') {
                    self.guest.files_like(|path| matches_pattern(&text, path))
                } else {
                    Vec::new()
                };
                if found.is_empty() { values.push(text) } else { values.extend(found) }
            }
        }
        let mut status = 0;
        for value in values {
            self.variables.insert(name.to_owned(), value);
            match self.list(body, tested, output).await {
                Flow::Exit(code) => return Flow::Exit(code),
                Flow::Break => return Flow::Status(0),
                Flow::Status(code) => status = code,
            }
        }
        Flow::Status(status)
    }

    async fn grouped(
        &mut self,
        body: &[Command],
        redirects: &[Redirect],
        tested: bool,
        output: &mut Output,
    ) -> Flow {
        let mut inner = Output::default();
        let targets = match self.targets(redirects, output).await {
            Ok(targets) => targets,
            Err(code) => return Flow::Status(code),
        };
        let before = targets.stdin.clone().map(|stdin| std::mem::replace(&mut self.stdin, stdin));
        let flow = self.list(body, tested, &mut inner).await;
        if let Some(before) = before {
            self.stdin = before;
        }
        self.deliver(inner, &targets, output);
        flow
    }

    async fn simple(
        &mut self,
        assignments: &[(String, Word)],
        words: &[Word],
        redirects: &[Redirect],
        output: &mut Output,
    ) -> Flow {
        let mut command = Vec::new();
        for word in words {
            match self.expand(word, output).await {
                Ok(words) => command.extend(words),
                Err(code) => return Flow::Exit(code),
            }
        }
        let mut status = 0;
        for (name, value) in assignments {
            match self.expand(value, output).await {
                Ok(words) => {
                    self.variables.insert(name.clone(), words.join(" "));
                    if value.iter().any(|piece| matches!(piece, Piece::Command(..))) {
                        status = self.last;
                    }
                }
                Err(code) => return Flow::Exit(code),
            }
        }
        let targets = match self.targets(redirects, output).await {
            Ok(targets) => targets,
            Err(code) => return Flow::Status(code),
        };
        if command.is_empty() {
            return Flow::Status(status);
        }
        if command[0] == "exec" && command.len() == 1 {
            self.output.extend(
                targets.files.iter().filter(|(fd, _)| **fd <= 2).map(|(fd, path)| (*fd, path.clone())),
            );
            self.descriptors.extend(
                targets.files.iter().filter(|(fd, _)| **fd > 2).map(|(fd, path)| (*fd, path.clone())),
            );
            return Flow::Status(0);
        }
        let mut inner = Output::default();
        let before = targets.stdin.clone().map(|stdin| std::mem::replace(&mut self.stdin, stdin));
        let flow = self.call(command, &mut inner).await;
        if let Some(before) = before {
            self.stdin = before;
        }
        self.deliver(inner, &targets, output);
        flow
    }

    async fn call(&mut self, mut command: Vec<String>, output: &mut Output) -> Flow {
        match command[0].as_str() {
            "exec" => {
                command.remove(0);
                let code = programs::call(self, command, output).await;
                Flow::Exit(code)
            }
            "exit" => Flow::Exit(command.get(1).map_or(self.last, |code| code.parse().unwrap_or(2))),
            "set" => {
                for flags in &command[1..] {
                    let on = flags.starts_with('-');
                    for flag in flags.chars().skip(1) {
                        match flag {
                            'e' => self.exit_on_error = on,
                            'u' => self.refuse_unset = on,
                            flag => {
                                output.err.extend(
                                    format!(
                                        "sh: 1: set: -{flag} is not supported by this guest's \
                                        shell\n"
                                    )
                                    .bytes(),
                                );
                                return Flow::Exit(2);
                            }
                        }
                    }
                }
                Flow::Status(0)
            }
            "break" if command.len() == 1 => Flow::Break,
            "umask" | ":" | "export" | "unset" | "readonly" | "trap" => {
                for pair in &command[1..] {
                    if command[0] == "unset" {
                        self.variables.remove(pair);
                    } else if let (Some((name, value)), true) = (pair.split_once('='), command[0] == "export")
                    {
                        self.variables.insert(name.to_owned(), value.to_owned());
                    }
                }
                Flow::Status(0)
            }
            "read" => {
                let end = self.stdin.iter().position(|byte| *byte == b'\n');
                let line: Vec<u8> = self.stdin.drain(..end.map_or(self.stdin.len(), |end| end + 1)).collect();
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                if let Some(name) = command.iter().skip(1).find(|word| !word.starts_with('-')) {
                    self.variables.insert(name.clone(), text);
                }
                Flow::Status(i32::from(end.is_none()))
            }
            "eval" | "source" | "." | "local" | "return" | "continue" | "shift" | "wait" => {
                output.err.extend(
                    format!("sh: 1: {} is not supported by this guest's shell\n", command[0]).bytes(),
                );
                Flow::Exit(2)
            }
            _ => Flow::Status(programs::call(self, command, output).await),
        }
    }

    async fn expand(&mut self, word: &Word, output: &mut Output) -> Result<Vec<String>, i32> {
        let mut words = vec![String::new()];
        let mut present = word.iter().any(|piece| {
            matches!(
                piece,
                Piece::Text(_) | Piece::Sum(_) | Piece::Variable(_, _, true) | Piece::Command(_, true)
            )
        });
        for piece in word {
            let (text, split) = match piece {
                Piece::Text(text) => (text.clone(), false),
                Piece::Variable(name, default, quoted) => {
                    if name == "@" && *quoted {
                        let rest: Vec<String> = self.arguments.iter().skip(1).cloned().collect();
                        present = !rest.is_empty();
                        words = rest;
                        continue;
                    }
                    (self.variable(name, default.as_ref(), output)?, !quoted)
                }
                Piece::Sum(terms) => (self.add_up(terms, output)?.to_string(), false),
                Piece::Command(script, quoted) => {
                    let mut inner = Output::default();
                    let mut shell = self.clone();
                    let parsed = parse(script).map_err(|text| {
                        output.err.extend(format!("sh: 1: {text}\n").bytes());
                        2
                    })?;
                    self.last = shell.list(&parsed, false, &mut inner).await.code();
                    output.err.append(&mut inner.err);
                    (String::from_utf8_lossy(&inner.out).trim_end_matches('\n').to_owned(), !quoted)
                }
            };
            if split {
                let mut parts = text.split_whitespace();
                if let (Some(first), Some(last)) = (parts.next(), words.last_mut()) {
                    last.push_str(first);
                    present = true;
                }
                words.extend(parts.map(String::from));
            } else if let Some(last) = words.last_mut() {
                last.push_str(&text);
            }
        }
        Ok(if present { words } else { Vec::new() })
    }

    fn variable(&self, name: &str, default: Option<&String>, output: &mut Output) -> Result<String, i32> {
        let value = match name {
            "?" => Some(self.last.to_string()),
            "#" => Some(self.arguments.len().saturating_sub(1).to_string()),
            "$" => Some("4711".to_owned()),
            "@" | "*" => Some(self.arguments.iter().skip(1).cloned().collect::<Vec<_>>().join(" ")),
            name => match name.parse::<usize>() {
                Ok(number) => self.arguments.get(number).cloned(),
                Err(_) => self.variables.get(name).cloned(),
            },
        };
        match (value.filter(|value| !value.is_empty() || default.is_none()), default) {
            (Some(value), _) => Ok(value),
            (None, Some(default)) => Ok(default.clone()),
            (None, None) if self.refuse_unset => {
                output.err.extend(format!("sh: 1: {name}: parameter not set\n").bytes());
                Err(2)
            }
            (None, None) => Ok(String::new()),
        }
    }

    fn add_up(&self, terms: &[Term], output: &mut Output) -> Result<i64, i32> {
        let mut total = 0;
        for (minus, text) in terms {
            let value = match text.parse::<i64>() {
                Ok(number) => number,
                // An unset or empty variable is treated as 0.
                Err(_) => self.variable(text, Some(&"0".to_owned()), output)?.parse().unwrap_or(0),
            };
            total += if *minus { -value } else { value };
        }
        Ok(total)
    }

    async fn targets(&mut self, redirects: &[Redirect], output: &mut Output) -> Result<Targets, i32> {
        let mut targets = Targets::default();
        for redirect in redirects {
            match redirect {
                Redirect::Copy(from, to) => {
                    let file = targets.files.get(to).or_else(|| self.output.get(to)).cloned();
                    match file {
                        Some(file) => targets.files.insert(*from, file),
                        None => targets.files.insert(*from, format!("&{to}")),
                    };
                }
                // Output to a closed descriptor is discarded.
                Redirect::Close(descriptor) => {
                    targets.files.insert(*descriptor, "/dev/null".to_owned());
                }
                Redirect::Out(descriptor, word, append) => {
                    let path = self.expand(word, output).await?.join(" ");
                    if !append && path != "/dev/null" && !path.starts_with("/dev/std") {
                        self.guest.write_file(&path, Vec::new());
                    }
                    targets.files.insert(*descriptor, path);
                }
                Redirect::In(word) => {
                    let path = self.expand(word, output).await?.join(" ");
                    let content =
                        if path == "/dev/null" { Some(Vec::new()) } else { self.guest.read_file(&path) };
                    let Some(content) = content else {
                        output.err.extend(format!("sh: 1: cannot open {path}: No such file\n").bytes());
                        return Err(2);
                    };
                    targets.stdin = Some(content);
                }
            }
        }
        Ok(targets)
    }

    fn deliver(&self, inner: Output, targets: &Targets, output: &mut Output) {
        for (descriptor, bytes) in [(1, inner.out), (2, inner.err)] {
            let target = targets.files.get(&descriptor).or_else(|| self.output.get(&descriptor));
            match target.map(String::as_str) {
                None if descriptor == 1 => output.out.extend(bytes),
                None | Some("&2" | "/dev/stderr") => output.err.extend(bytes),
                Some("&1" | "/dev/stdout") => output.out.extend(bytes),
                Some("/dev/null") => {}
                Some(path) => {
                    let mut content = self.guest.read_file(path).unwrap_or_default();
                    content.extend(bytes);
                    self.guest.write_file(path, content);
                }
            }
        }
    }
}

#[derive(Default)]
struct Targets {
    files: BTreeMap<u32, String>,
    stdin: Option<Vec<u8>>,
}

fn matches_pattern(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            let Some(rest) = text.strip_prefix(before) else { return false };
            (0..=rest.len())
                .filter(|at| rest.is_char_boundary(*at))
                .any(|at| matches_pattern(after, &rest[at..]))
        }
    }
}

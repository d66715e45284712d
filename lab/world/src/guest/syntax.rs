//! The subset of POSIX shell syntax that bootstrap scripts use. Any other syntax is refused with an error
//! that names it.

/// A piece of a word.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// A variable: its name, the default of `${NAME:-default}`, and whether it is quoted.
    Variable(String, Option<String>, bool),
    /// `$(…)`, and whether it is quoted.
    Command(String, bool),
    /// `$((…))`: numbers and variables that are added and subtracted.
    Sum(Vec<Term>),
}

/// One operand of a sum: whether it is subtracted, and its value (a number or the name of a variable).
pub type Term = (bool, String);

/// A word before its expansion.
pub type Word = Vec<Piece>;

/// A redirection of a file descriptor.
#[derive(Clone, Debug, PartialEq)]
pub enum Redirect {
    /// `n>file`, `n>>file`: descriptor, file, whether it appends.
    Out(u32, Word, bool),
    /// `<file`.
    In(Word),
    /// `n>&m`.
    Copy(u32, u32),
    /// `n>&-`.
    Close(u32),
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Assignments, words, redirections.
    Simple(Vec<(String, Word)>, Vec<Word>, Vec<Redirect>),
    /// `if`/`elif` branches and `else`.
    If(Vec<(Vec<Command>, Vec<Command>)>, Vec<Command>),
    /// `while`, or `until` if the flag is true: condition and body.
    While(bool, Vec<Command>, Vec<Command>),
    /// `for`: variable, words, and body.
    For(String, Vec<Word>, Vec<Command>),
    /// `case`: the word, and the arms, each with its patterns and its body.
    Case(Word, Vec<(Vec<Word>, Vec<Command>)>),
    /// `{ … }` with redirections.
    Group(Vec<Command>, Vec<Redirect>),
    /// `( … )` with redirections.
    Subshell(Vec<Command>, Vec<Redirect>),
    /// `a && b`.
    And(Box<Command>, Box<Command>),
    /// `a || b`.
    Or(Box<Command>, Box<Command>),
    /// `! a`.
    Not(Box<Command>),
    /// `a | b`.
    Pipe(Box<Command>, Box<Command>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(Word),
    Operator(&'static str),
    Redirect(u32, &'static str),
}

const OPERATORS: &[&str] = &["&&", "||", ";;", ";", "|", "(", ")", "\n"];
const RESERVED: &[&str] = &["then", "elif", "else", "fi", "do", "done", "esac", "}"];

/// Parses a script.
///
/// # Errors
/// Returns an error that names the first construct outside the supported syntax.
pub fn parse(script: &str) -> Result<Vec<Command>, String> {
    let mut parser = Parser { tokens: tokens(script)?, at: 0 };
    let commands = parser.list(&[])?;
    match parser.peek() {
        None => Ok(commands),
        Some(token) => Err(format!("Syntax error: {token:?} unexpected")),
    }
}

fn tokens(script: &str) -> Result<Vec<Token>, String> {
    let chars: Vec<char> = script.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let rest = &chars[at..];
        if c == ' ' || c == '\t' || c == '\r' {
            at += 1;
        } else if c == '\\' && rest.get(1) == Some(&'\n') {
            at += 2;
        } else if c == '#' {
            at += rest.iter().take_while(|c| **c != '\n').count();
        } else if let Some(length) = redirect(rest, &mut tokens)? {
            at += length;
        } else if let Some(operator) = OPERATORS.iter().find(|operator| starts(rest, operator)) {
            tokens.push(Token::Operator(operator));
            at += operator.len();
        } else if c == '&' {
            return Err("background jobs are not supported by this guest's shell".into());
        } else {
            let (word, length) = word(rest)?;
            tokens.push(Token::Word(word));
            at += length;
        }
    }
    Ok(tokens)
}

fn starts(chars: &[char], text: &str) -> bool {
    text.chars().enumerate().all(|(at, c)| chars.get(at) == Some(&c))
}

fn redirect(rest: &[char], tokens: &mut Vec<Token>) -> Result<Option<usize>, String> {
    let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    let number: String = rest[..digits].iter().collect();
    let after = &rest[digits..];
    if starts(after, "<<") || starts(after, "<&") || starts(after, "<>") {
        return Err("here-documents, <& and <> are not supported by this guest's shell".into());
    }
    let Some(operator) = [">&", ">>", ">|", ">", "<"].into_iter().find(|operator| starts(after, operator))
    else {
        return Ok(None);
    };
    let default = u32::from(!operator.starts_with('<'));
    tokens.push(Token::Redirect(number.parse().unwrap_or(default), operator));
    Ok(Some(digits + operator.len()))
}

fn word(rest: &[char]) -> Result<(Word, usize), String> {
    let mut pieces = Word::new();
    let mut at = 0;
    let mut quoted = false;
    while let Some(&c) = rest.get(at) {
        match c {
            '"' => {
                quoted = !quoted;
                push(&mut pieces, "");
                at += 1;
            }
            '\'' if !quoted => {
                let length = rest[at + 1..]
                    .iter()
                    .position(|c| *c == '\'')
                    .ok_or("Syntax error: Unterminated quoted string")?;
                push(&mut pieces, &rest[at + 1..=at + length].iter().collect::<String>());
                at += length + 2;
            }
            '\\' => {
                let next = *rest.get(at + 1).unwrap_or(&'\\');
                let plain = quoted && !['"', '\\', '$', '`', '\n'].contains(&next);
                if next != '\n' {
                    push(&mut pieces, &if plain { format!("\\{next}") } else { next.to_string() });
                }
                at += 2;
            }
            '$' => {
                let (piece, length) = expansion(&rest[at..], quoted)?;
                pieces.push(piece);
                at += length;
            }
            '`' => return Err("backquotes are not supported by this guest's shell; use $(…) instead".into()),
            ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' if !quoted => break,
            c => {
                push(&mut pieces, &c.to_string());
                at += 1;
            }
        }
    }
    if quoted { Err("Syntax error: Unterminated quoted string".into()) } else { Ok((pieces, at)) }
}

fn push(pieces: &mut Word, text: &str) {
    if let Some(Piece::Text(last)) = pieces.last_mut() {
        last.push_str(text);
    } else {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

fn expansion(rest: &[char], quoted: bool) -> Result<(Piece, usize), String> {
    match rest.get(1) {
        Some('(') if rest.get(2) == Some(&'(') => sum(&rest[3..]),
        Some('(') => {
            let mut depth = 0;
            for (at, c) in rest.iter().enumerate().skip(1) {
                depth += match c {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                if depth == 0 {
                    return Ok((Piece::Command(rest[2..at].iter().collect(), quoted), at + 1));
                }
            }
            Err("Syntax error: end of file unexpected (expecting \")\")".into())
        }
        Some('{') => {
            let end = rest.iter().position(|c| *c == '}').ok_or("Syntax error: Missing '}'")?;
            let inside: String = rest[2..end].iter().collect();
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name.to_owned(), Some(default.to_owned())),
                None => (inside, None),
            };
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("${{{name}}} is not supported by this guest's shell"));
            }
            Ok((Piece::Variable(name, default, quoted), end + 1))
        }
        Some(c) if "?#@*$".contains(*c) || c.is_ascii_digit() => {
            Ok((Piece::Variable(c.to_string(), None, quoted), 2))
        }
        Some(c) if c.is_ascii_alphabetic() || *c == '_' => {
            let name: String =
                rest[1..].iter().take_while(|c| c.is_ascii_alphanumeric() || **c == '_').collect();
            let length = name.len() + 1;
            Ok((Piece::Variable(name, None, quoted), length))
        }
        _ => Ok((Piece::Text("$".into()), 1)),
    }
}

/// Parses `$((a + b - 1))`, starting after the opening parentheses.
fn sum(rest: &[char]) -> Result<(Piece, usize), String> {
    let end = rest.windows(2).position(|pair| pair == [')', ')']);
    let end = end.ok_or("Syntax error: Missing '))'")?;
    let text: String = rest[..end].iter().collect();
    let mut terms = Vec::new();
    let mut minus = false;
    for (at, word) in text.split_whitespace().enumerate() {
        match (at % 2, word) {
            (1, "+" | "-") => minus = word == "-",
            (0, name) if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                terms.push((minus, name.to_owned()));
            }
            _ => return Err(format!("$(({text})) is not supported by this guest's shell")),
        }
    }
    Ok((Piece::Sum(terms), end + 5))
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn keyword(&self) -> Option<&str> {
        match self.peek()? {
            Token::Word(pieces) => match pieces.as_slice() {
                [Piece::Text(text)] => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    fn take_operator(&mut self, operator: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Operator(found)) if *found == operator);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, keyword: &str) -> Result<(), String> {
        if self.keyword() == Some(keyword) {
            self.at += 1;
            return Ok(());
        }
        Err(format!("Syntax error: expecting \"{keyword}\""))
    }

    fn newlines(&mut self) {
        while self.take_operator("\n") {}
    }

    fn list(&mut self, stops: &[&str]) -> Result<Vec<Command>, String> {
        let mut commands = Vec::new();
        loop {
            while self.take_operator("\n") || self.take_operator(";") {}
            let stop = self.keyword().is_some_and(|word| stops.contains(&word));
            if stop || self.peek().is_none() || matches!(self.peek(), Some(Token::Operator(")" | ";;"))) {
                return Ok(commands);
            }
            commands.push(self.and_or()?);
        }
    }

    fn and_or(&mut self) -> Result<Command, String> {
        let mut left = self.pipeline()?;
        loop {
            let and = self.take_operator("&&");
            if !and && !self.take_operator("||") {
                return Ok(left);
            }
            self.newlines();
            let right = Box::new(self.pipeline()?);
            left = if and { Command::And(Box::new(left), right) } else { Command::Or(Box::new(left), right) };
        }
    }

    fn pipeline(&mut self) -> Result<Command, String> {
        if self.keyword() == Some("!") {
            self.at += 1;
            return Ok(Command::Not(Box::new(self.pipeline()?)));
        }
        let mut left = self.command()?;
        while self.take_operator("|") {
            self.newlines();
            left = Command::Pipe(Box::new(left), Box::new(self.command()?));
        }
        Ok(left)
    }

    fn command(&mut self) -> Result<Command, String> {
        if self.take_operator("(") {
            let body = self.list(&[])?;
            if !self.take_operator(")") {
                return Err("Syntax error: expecting \")\"".into());
            }
            return Ok(Command::Subshell(body, self.redirects()?));
        }
        match self.keyword() {
            Some("if") => self.conditional(),
            Some(word @ ("while" | "until")) => {
                let until = word == "until";
                self.at += 1;
                let condition = self.list(&["do"])?;
                self.expect("do")?;
                let body = self.list(&["done"])?;
                self.expect("done")?;
                Ok(Command::While(until, condition, body))
            }
            Some("for") => self.each(),
            Some("case") => self.case(),
            Some("{") => {
                self.at += 1;
                let body = self.list(&["}"])?;
                self.expect("}")?;
                Ok(Command::Group(body, self.redirects()?))
            }
            Some(word @ ("function" | "select")) => {
                Err(format!("{word} is not supported by this guest's shell"))
            }
            Some(word) if RESERVED.contains(&word) => Err(format!("Syntax error: \"{word}\" unexpected")),
            _ => self.simple(),
        }
    }

    fn each(&mut self) -> Result<Command, String> {
        self.at += 1;
        let name = self.keyword().ok_or("Syntax error: Bad for loop variable")?.to_owned();
        self.at += 1;
        self.expect("in")?;
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.peek().cloned() {
            self.at += 1;
            words.push(word);
        }
        while self.take_operator("\n") || self.take_operator(";") {}
        self.expect("do")?;
        let body = self.list(&["done"])?;
        self.expect("done")?;
        Ok(Command::For(name, words, body))
    }

    fn conditional(&mut self) -> Result<Command, String> {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            self.at += 1; // `if` or `elif`
            let condition = self.list(&["then"])?;
            self.expect("then")?;
            branches.push((condition, self.list(&["elif", "else", "fi"])?));
            match self.keyword() {
                Some("elif") => {}
                Some("else") => {
                    self.at += 1;
                    otherwise = self.list(&["fi"])?;
                    break;
                }
                _ => break,
            }
        }
        self.expect("fi")?;
        Ok(Command::If(branches, otherwise))
    }

    fn case(&mut self) -> Result<Command, String> {
        self.at += 1;
        let Some(Token::Word(subject)) = self.peek().cloned() else {
            return Err("Syntax error: case".into());
        };
        self.at += 1;
        self.expect("in")?;
        let mut arms = Vec::new();
        loop {
            self.newlines();
            if self.keyword() == Some("esac") {
                self.at += 1;
                return Ok(Command::Case(subject, arms));
            }
            self.take_operator("(");
            let mut patterns = Vec::new();
            while let Some(Token::Word(pattern)) = self.peek().cloned() {
                self.at += 1;
                patterns.push(pattern);
                if !self.take_operator("|") {
                    break;
                }
            }
            if patterns.is_empty() || !self.take_operator(")") {
                return Err("Syntax error: expecting \")\"".into());
            }
            arms.push((patterns, self.list(&["esac"])?));
            self.take_operator(";;");
        }
    }

    fn redirects(&mut self) -> Result<Vec<Redirect>, String> {
        let mut redirects = Vec::new();
        while let Some(Token::Redirect(descriptor, operator)) = self.peek().cloned() {
            self.at += 1;
            let Some(Token::Word(target)) = self.peek().cloned() else {
                return Err("Syntax error: redirection without a target".into());
            };
            self.at += 1;
            redirects.push(match operator {
                "<" => Redirect::In(target),
                ">&" => match target.as_slice() {
                    [Piece::Text(text)] if text.parse::<u32>().is_ok() => {
                        Redirect::Copy(descriptor, text.parse().unwrap_or(1))
                    }
                    [Piece::Text(text)] if text == "-" => Redirect::Close(descriptor),
                    _ => return Err("only numbers and - may follow >& in this guest's shell".into()),
                },
                operator => Redirect::Out(descriptor, target, operator == ">>"),
            });
        }
        Ok(redirects)
    }

    fn simple(&mut self) -> Result<Command, String> {
        let (mut assignments, mut words, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            redirects.extend(self.redirects()?);
            let Some(Token::Word(word)) = self.peek().cloned() else { break };
            self.at += 1;
            match assignment(&word) {
                Some(pair) if words.is_empty() => assignments.push(pair),
                _ => words.push(word),
            }
        }
        if words.is_empty() && assignments.is_empty() && redirects.is_empty() {
            return Err(format!("Syntax error: {:?} unexpected", self.peek()));
        }
        if matches!(self.peek(), Some(Token::Operator("("))) {
            return Err("functions are not supported by this guest's shell".into());
        }
        Ok(Command::Simple(assignments, words, redirects))
    }
}

fn assignment(word: &Word) -> Option<(String, Word)> {
    let Some(Piece::Text(first)) = word.first() else { return None };
    let (name, value) = first.split_once('=')?;
    let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    valid.then(|| {
        let rest = word.iter().skip(1).cloned();
        (name.to_owned(), std::iter::once(Piece::Text(value.to_owned())).chain(rest).collect())
    })
}

//! Derives inputs from known ones. Bytes are flipped. Parts are removed, duplicated, cut off, or swapped with
//! parts of another input. Values that often break programs are inserted.

use fastrand::Rng;

/// The values that are inserted.
const AWKWARD: [&str; 42] = [
    "0",
    "-1",
    "1",
    "255",
    "256",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "1e-400",
    "-0",
    "NaN",
    "0x10",
    "00000000000000000001",
    "340282366920938463463374607431768211456",
    "",
    "\"",
    "'",
    "\\",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "{}",
    "[]",
    "null",
    "true",
    ",",
    "=",
    ":",
    "-",
    "..",
    "/",
    "%00",
    "\u{feff}",
    "\u{202e}ü𝄞",
    "abcdef.0123456789abcdef",
];
/// The maximum size of an input, in bytes.
const MOST: usize = 64 * 1024;

/// Derives inputs from known ones.
pub struct Change {
    known: Vec<Vec<u8>>,
    random: Rng,
}

impl Change {
    /// Creates a source of inputs that are derived from known ones. There must be at least one known input.
    pub fn new(known: Vec<Vec<u8>>, random: Rng) -> Self {
        Self { known, random }
    }

    fn one(&mut self) -> Vec<u8> {
        let at = self.random.usize(..self.known.len().max(1));
        self.known.get(at).cloned().unwrap_or_default()
    }

    /// The next input.
    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.one();
        for _ in 0..self.random.u8(1..=6) {
            self.change(&mut input);
        }
        input.truncate(MOST);
        input
    }

    fn part(&mut self, input: &[u8]) -> (usize, usize) {
        let from = self.random.usize(..=input.len());
        let longest = (input.len() - from).min(1 << self.random.u32(0..9));
        (from, from + self.random.usize(..=longest))
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.part(input);
        match self.random.u8(..9) {
            0 => drop(input.drain(from..to)),
            1 => {
                let part = input.get(from..to).unwrap_or_default().repeat(self.random.usize(1..4));
                input.splice(from..from, part);
            }
            2 => {
                if let Some(byte) = input.get_mut(from) {
                    *byte ^= 1 << self.random.u8(..8);
                }
            }
            3 => input.truncate(from),
            4 => {
                let other = self.one();
                let (start, end) = self.part(&other);
                input.splice(from..to, other.get(start..end).unwrap_or_default().iter().copied());
            }
            5 | 6 => self.number(input),
            7 => self.lines(input),
            _ => {
                let value = self.awkward();
                input.splice(from..from, value);
            }
        }
    }

    fn awkward(&mut self) -> Vec<u8> {
        let value = AWKWARD.get(self.random.usize(..AWKWARD.len())).copied().unwrap_or_default();
        value.as_bytes().to_vec()
    }

    /// Replaces a number in the input with another one.
    fn number(&mut self, input: &mut Vec<u8>) {
        let digits: Vec<usize> =
            (0..input.len()).filter(|at| input.get(*at).is_some_and(u8::is_ascii_digit)).collect();
        if digits.is_empty() {
            return;
        }
        let Some(&from) = digits.get(self.random.usize(..digits.len())) else { return };
        let to = (from..input.len()).find(|at| !input.get(*at).is_some_and(u8::is_ascii_digit));
        let value = self.awkward();
        input.splice(from..to.unwrap_or(input.len()), value);
    }

    /// Swaps two lines, or repeats one.
    fn lines(&mut self, input: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (one, other) = (self.random.usize(..lines.len()), self.random.usize(..lines.len()));
        if self.random.bool() {
            lines.swap(one, other);
        } else if let Some(line) = lines.get(one).cloned() {
            lines.insert(other, line);
        }
        *input = lines.join(&b'\n');
    }
}

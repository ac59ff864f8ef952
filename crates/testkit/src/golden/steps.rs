//! Playing the lines of a case.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use carrack_base::counters::Accounts;
use carrack_base::{REASONS, Reason};
use carrack_config::Compiled;
use carrack_pipeline::snapshot::Interface;
use carrack_wire::vlan::parse_l2;

use super::{load, read};
use crate::judge::{interface_of, tags_of};
use crate::network::{Network, Sent};
use crate::text;

/// What left in the step at hand, and what is still expected of it.
pub(super) struct Player {
    directory: PathBuf,
    compiled: Compiled,
    network: Network,
    variables: BTreeMap<String, String>,
    left: VecDeque<Sent>,
    before: Accounts,
    received: u64,
    expected_out: u64,
    expected: BTreeMap<String, i64>,
    in_results: bool,
    seen: BTreeSet<Reason>,
}

impl Player {
    pub(super) fn new(directory: &Path, config: &Path) -> Result<Self, String> {
        let compiled = load(config, None)?;
        let workers = compiled.snapshot.clone();
        let mut network = Network::new(workers, compiled.sizes, 1, [7, 1, 8, 2]);
        let before = network.totals();
        Ok(Self {
            directory: directory.to_owned(),
            compiled,
            network,
            variables: BTreeMap::new(),
            left: VecDeque::new(),
            before,
            received: 0,
            expected_out: 0,
            expected: BTreeMap::new(),
            in_results: false,
            seen: BTreeSet::new(),
        })
    }

    pub(super) fn play(mut self, text: &str) -> Result<BTreeSet<Reason>, String> {
        self.lines(text)?;
        self.end_step().map_err(|error| format!("end: {error}"))?;
        self.finish().map_err(|error| format!("after the case: {error}"))?;
        Ok(self.seen)
    }

    fn lines(&mut self, text: &str) -> Result<(), String> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                self.line(line).map_err(|error| format!("{}: `{line}`: {error}", number + 1))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "<" => self.expect_packet(rest.trim()),
            "=" => self.expect_counter(rest.trim()),
            _ => {
                if self.in_results || word != ">" {
                    self.end_step()?;
                }
                self.act(word, rest.trim())
            }
        }
    }

    fn act(&mut self, word: &str, rest: &str) -> Result<(), String> {
        match word {
            ">" => self.send(rest)?,
            "wait" => {
                let seconds: f64 = rest.parse().map_err(|_| "write a number of seconds".to_owned())?;
                let ms = (seconds * 1_000.0) as u64;
                let step = if ms > 60_000 { 1_000 } else { 100 };
                self.left.extend(self.network.wait_ms(ms, step));
            }
            "silent" => {
                let ip: Ipv4Addr = rest.parse().map_err(|_| "write an address".to_owned())?;
                self.network.silent.insert(ip.into());
            }
            "reload" => {
                self.compiled = load(&self.directory.join(rest), Some(&self.compiled))?;
                self.left.extend(self.network.reconfigure(self.compiled.snapshot.clone()));
            }
            "file" => {
                let text = read(&self.directory.join(rest))?;
                self.lines(&text)?;
            }
            _ => return Err(format!("`{word}` is no step; write one of > < = wait silent reload file")),
        }
        Ok(())
    }

    fn interface(&self, name: &str) -> Result<Interface, String> {
        let found = self.network.snapshot.interfaces.iter().flatten().find(|i| i.name == name);
        found.cloned().ok_or(format!("there is no interface `{name}`"))
    }

    fn send(&mut self, rest: &str) -> Result<(), String> {
        let (name, packet) = rest.split_once(' ').ok_or("write interface and packet")?;
        let interface = self.interface(name)?;
        let (count, packet) = match packet.strip_prefix('x').and_then(|text| text.split_once(' ')) {
            Some((count, packet)) => (count.parse::<u32>().map_err(|_| "write a count as x40")?, packet),
            None => (1, packet),
        };
        let packet = self.substitute(packet)?;
        for n in 1..=count {
            let line = packet.replace('%', &n.to_string());
            let frame = text::frame(&line, interface.mac, None, &tags_of(interface.vlan))?;
            self.received += 1;
            self.left.extend(self.network.send(0, interface.port, &[frame]));
        }
        Ok(())
    }

    /// Puts known variables in.
    fn substitute(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            let name = &after[..end];
            out.push_str(before);
            out.push_str(self.variables.get(name).ok_or(format!("${name} is not known yet"))?);
            rest = &after[end..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn expect_packet(&mut self, expected: &str) -> Result<(), String> {
        self.in_results = true;
        if let Some(count) = expected.strip_prefix('*') {
            let count: u64 = count.parse().map_err(|_| "write a count as *5".to_owned())?;
            for _ in 0..count {
                self.left.pop_front().ok_or("fewer packets left")?;
            }
            self.expected_out += count;
            return Ok(());
        }
        self.expected_out += 1;
        let Some(sent) = self.left.pop_front() else {
            return Err(format!("nothing left; counters: {}", self.moved()));
        };
        let actual = self.describe(&sent, expected);
        if self.matches(expected, &actual) { Ok(()) } else { Err(format!("this left:\n  < {actual}")) }
    }

    /// A frame that left, in as much detail as the expectation has.
    fn describe(&self, sent: &Sent, expected: &str) -> String {
        let l2 = parse_l2(&sent.frame).ok();
        let tags = l2.as_ref().map_or(&[][..], |l2| l2.tags());
        let name = interface_of(&self.network.snapshot, sent.port, tags).map_or("?", |i| &i.name);
        let mut text = format!("{name} {}", text::describe(&sent.frame));
        for key in ["ttl=", "len=", "id="] {
            if !expected.contains(key)
                && let Some(start) = text.find(&format!(" {key}"))
            {
                let end = text[start + 1..].find(' ').map_or(text.len(), |at| start + 1 + at);
                text.replace_range(start..end, "");
            }
        }
        if expected.contains("via=")
            && let Some(l2) = l2
        {
            let [_, _, a, b, c, d] = l2.dst.0;
            text.push_str(&format!(" via={a}.{b}.{c}.{d}"));
        }
        text
    }

    /// Compares character by character; a variable takes the digits that stand there.
    fn matches(&mut self, expected: &str, actual: &str) -> bool {
        let (mut expected, mut actual) = (expected, actual);
        let mut found = BTreeMap::new();
        while let Some((before, after)) = expected.split_once('$') {
            let Some(rest) = actual.strip_prefix(before) else { return false };
            let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (name, value) = (&after[..end], &rest[..digits]);
            let known = self.variables.get(name).or_else(|| found.get(name));
            if value.is_empty() || known.is_some_and(|known| known != value) {
                return false;
            }
            found.insert(name.to_owned(), value.to_owned());
            (expected, actual) = (&after[end..], &rest[digits..]);
        }
        let same = expected == actual;
        if same {
            self.variables.extend(found);
        }
        same
    }

    fn expect_counter(&mut self, text: &str) -> Result<(), String> {
        self.in_results = true;
        let (name, count) = text.rsplit_once(' ').ok_or("write name and number")?;
        let name = name.strip_prefix("drop ").unwrap_or(name);
        let known = ["punted", "held", "consumed", "originated"].contains(&name);
        if !known && Reason::from_name(name).is_none() {
            return Err(format!("there is no counter `{name}`"));
        }
        let count: i64 = count.parse().map_err(|_| format!("`{count}` is not a number"))?;
        *self.expected.entry(name.to_owned()).or_default() += count;
        Ok(())
    }

    /// Counters that moved since the step began, without `rx` and `forwarded`.
    fn deltas(&mut self) -> (u64, u64, BTreeMap<String, i64>) {
        let now = self.network.totals();
        let before = &self.before;
        let mut moved = BTreeMap::new();
        let mut note = |name: &str, now: u64, before: u64| {
            if now != before {
                moved.insert(name.to_owned(), now as i64 - before as i64);
            }
        };
        note("punted", now.punted, before.punted);
        note("held", now.held, before.held);
        note("consumed", now.consumed, before.consumed);
        note("originated", now.originated, before.originated);
        for row in REASONS {
            let at = row.reason as usize;
            note(row.name, now.drops[at], before.drops[at]);
        }
        (now.rx - before.rx, now.forwarded - before.forwarded, moved)
    }

    fn moved(&mut self) -> String {
        let (_, _, moved) = self.deltas();
        moved.iter().map(|(name, count)| format!("{name} {count:+} ")).collect()
    }

    fn end_step(&mut self) -> Result<(), String> {
        if let Some(sent) = self.left.pop_front() {
            return Err(format!(
                "before this line, this left too:\n  < {}",
                self.describe(&sent, "ttl= len= id=")
            ));
        }
        let (rx, forwarded, moved) = self.deltas();
        if moved != self.expected {
            return Err(format!("before this line counters moved by {moved:?}, not by {:?}", self.expected));
        }
        if (rx, forwarded) != (self.received, self.expected_out) {
            return Err(format!("rx moved by {rx} and forwarded by {forwarded}"));
        }
        for name in moved.keys() {
            self.seen.extend(Reason::from_name(name));
        }
        self.before = self.network.totals();
        (self.received, self.expected_out, self.in_results) = (0, 0, false);
        self.expected.clear();
        Ok(())
    }

    /// After all timeouts nothing is held and every frame is home.
    fn finish(&mut self) -> Result<(), String> {
        self.network.wait_ms(15_000, 250);
        let held = self.network.totals().held;
        if held != 0 || self.network.frames_out() != 0 {
            return Err(format!("{held} packets held, {} frames missing", self.network.frames_out()));
        }
        Ok(())
    }
}

//! Reading tables key by key, guided by [`crate::keys`]: kinds, ranges and defaults come from there.
//!
//! Nothing here stops at the first fault. A value that cannot be used is reported and replaced by its type's default,
//! so that the rest of the file is read too; the config is then refused as a whole.

mod convert;

use std::cell::RefCell;
use std::collections::BTreeSet;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::keys::{self, Fallback, KeyInfo};
use crate::model::{Facts, SEPARATOR};
use crate::source::{At, Severity, Span};
use crate::suggest;

pub(crate) use convert::{FromToml, PerGateway, PerProto};

pub(crate) type Value<'i> = Spanned<DeValue<'i>>;

/// Something wrong at a place; with no place, about the file.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) severity: Severity,
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// What reading gathers beside the values.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) faults: RefCell<Vec<Fault>>,
    pub(crate) facts: RefCell<Facts>,
    /// Keys that were asked for, (table, name).
    pub(crate) asked: RefCell<BTreeSet<(&'static str, &'static str)>>,
}

impl Notes {
    pub(crate) fn error(&self, span: Span, message: impl Into<String>) {
        let fault = Fault { severity: Severity::Error, span, message: message.into() };
        self.faults.borrow_mut().push(fault);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.faults.borrow().iter().any(|fault| fault.severity == Severity::Error)
    }

    pub(crate) fn warning(&self, span: Span, message: impl Into<String>) {
        let fault = Fault { severity: Severity::Warning, span, message: message.into() };
        self.faults.borrow_mut().push(fault);
    }
}

/// A table being read.
pub(crate) struct Section<'a> {
    notes: &'a Notes,
    /// `None` for a table that is not written: all keys have their defaults.
    table: Option<&'a DeTable<'a>>,
    /// Path in [`keys`].
    schema: &'static str,
    /// Path with the names of list elements.
    path: String,
    /// Where the table stands.
    pub(crate) span: Span,
}

impl<'a> Section<'a> {
    /// The file itself.
    pub(crate) fn root(notes: &'a Notes, table: &'a DeTable<'a>) -> Self {
        let section =
            Self { notes, table: Some(table), schema: "", path: String::new(), span: Span::default() };
        section.refuse_unknown();
        section
    }

    /// Is anything written?
    pub(crate) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// A table inside.
    pub(crate) fn section(&self, name: &'static str) -> Section<'a> {
        let (schema, path) = self.below(name);
        let (table, span) = match self.raw(name) {
            Some((_, value)) => match value.get_ref() {
                DeValue::Table(table) => (Some(table), value.span().into()),
                other => {
                    let message = format!(
                        "`{name}` is {} where a table is wanted; write {} above its keys",
                        convert::describe(other),
                        keys::header(schema)
                    );
                    self.notes.error(value.span().into(), message);
                    (None, value.span().into())
                }
            },
            None => (None, self.span),
        };
        let section = Section { notes: self.notes, table, schema, path, span };
        section.refuse_unknown();
        section
    }

    /// The elements of a list of tables.
    pub(crate) fn sections(&self, name: &'static str) -> Vec<Section<'a>> {
        let (schema, path) = self.below(name);
        let Some((_, value)) = self.raw(name) else { return Vec::new() };
        let wrong = |value: &Value<'_>| {
            let message = format!(
                "`{name}` is {} where a list of tables is wanted; write {} above the keys of each",
                convert::describe(value.get_ref()),
                keys::header(schema)
            );
            self.notes.error(value.span().into(), message);
        };
        let elements: Vec<&'a Value<'a>> = match value.get_ref() {
            DeValue::Array(elements) => elements.iter().collect(),
            // Brackets forgotten: read on, so that what refers to it is not reported too.
            DeValue::Table(_) => {
                wrong(value);
                vec![value]
            }
            _ => {
                wrong(value);
                return Vec::new();
            }
        };
        let mut sections = Vec::new();
        for element in elements {
            let DeValue::Table(table) = element.get_ref() else {
                wrong(element);
                continue;
            };
            let span = element.span().into();
            let section = Section { notes: self.notes, table: Some(table), schema, path: path.clone(), span };
            section.refuse_unknown();
            sections.push(section);
        }
        sections
    }

    /// Gives a list element its name in paths: `nat` becomes `nat.cgn1`. False when the label is taken.
    pub(crate) fn label(&mut self, label: &str) -> bool {
        self.path = format!("{}{SEPARATOR}{label}", self.path);
        self.notes.facts.borrow_mut().items.insert(self.path.clone(), self.schema).is_none()
    }

    /// The value of a key that may be missing.
    pub(crate) fn get<T: FromToml>(&self, name: &'static str) -> Option<At<T>> {
        let info = self.info(name)?;
        let read = match self.raw(name) {
            Some((_, value)) => self.convert::<T>(info, value, value.span().into()),
            None => match info.default {
                Fallback::Value(text) => self.fallback::<T>(info, text),
                Fallback::Absent(_) => None,
                Fallback::Required => {
                    let message = format!(
                        "{} has no `{name}`; add a line like `{name} = {}`",
                        keys::header(self.schema),
                        info.example
                    );
                    self.notes.error(self.span, message);
                    None
                }
            },
        };
        if let Some(read) = &read {
            let fact = (info, read.value.canonical());
            self.notes.facts.borrow_mut().values.insert(format!("{}{SEPARATOR}{name}", self.path), fact);
        }
        read
    }

    /// The value of a key as far as it is written and good; says nothing otherwise. For labels.
    pub(crate) fn peek<T: FromToml>(&self, name: &str) -> Option<At<T>> {
        let info = keys::key(self.schema, name)?;
        match (self.raw(name), info.default) {
            (Some((_, value)), _) => {
                T::from_toml(value, &info.kind, &mut Vec::new()).map(|read| At::new(read, value.span()))
            }
            (None, Fallback::Value(text)) => self.fallback(info, text),
            (None, _) => None,
        }
    }

    /// The value of a key that has a default or must be there.
    pub(crate) fn need<T: FromToml + Default>(&self, name: &'static str) -> At<T> {
        self.get(name).unwrap_or_else(|| At::new(T::default(), self.span))
    }

    /// Just the value.
    pub(crate) fn value<T: FromToml + Default>(&self, name: &'static str) -> T {
        self.need(name).value
    }

    /// Where the key is written, if it is.
    pub(crate) fn written(&self, name: &str) -> Option<Span> {
        self.raw(name).map(|(key, _)| key.span().into())
    }

    /// Where the key's value is written, else the table.
    pub(crate) fn span_of(&self, name: &str) -> Span {
        self.raw(name).map_or(self.span, |(_, value)| value.span().into())
    }

    fn below(&self, name: &'static str) -> (&'static str, String) {
        let join = |a: &str, by: char| if a.is_empty() { name.to_owned() } else { format!("{a}{by}{name}") };
        let schema = keys::section(&join(self.schema, '.')).map_or("", |section| section.path);
        (schema, join(&self.path, SEPARATOR))
    }

    fn raw(&self, name: &str) -> Option<(&'a Spanned<DeString<'a>>, &'a Value<'a>)> {
        self.table?.iter().find(|(key, _)| key.get_ref() == name)
    }

    fn info(&self, name: &'static str) -> Option<&'static KeyInfo> {
        let info = keys::key(self.schema, name);
        match info {
            Some(info) => {
                self.notes.asked.borrow_mut().insert((info.section, info.name));
            }
            // A key that the table of keys lacks is our mistake; the test of the two against each other finds it.
            None => {
                self.notes.error(self.span, format!("internal: no key {}.{name} is declared", self.schema))
            }
        }
        info
    }

    fn convert<T: FromToml>(&self, info: &KeyInfo, value: &Value<'_>, span: Span) -> Option<At<T>> {
        let mut faults = Vec::new();
        let read = T::from_toml(value, &info.kind, &mut faults);
        for (span, message) in faults {
            self.notes.error(span, format!("`{}`: {message}", info.name));
        }
        read.map(|value| At::new(value, span))
    }

    fn fallback<T: FromToml>(&self, info: &KeyInfo, text: &'static str) -> Option<At<T>> {
        let value = DeValue::parse(text).ok();
        let read = value.and_then(|value| T::from_toml(&value, &info.kind, &mut Vec::new()));
        if read.is_none() {
            self.notes
                .error(self.span, format!("internal: the default of {}.{} is bad", info.section, info.name));
        }
        read.map(|value| At::new(value, self.span))
    }

    /// Reports every key that the table does not have.
    fn refuse_unknown(&self) {
        let Some(table) = self.table else { return };
        let own = keys::keys().filter(|key| key.section == self.schema).map(|key| key.name);
        let known: Vec<&str> = own.chain(keys::subsections(self.schema)).collect();
        for key in table.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let message = self.unknown(name, &known);
            self.notes.error(key.span().into(), message);
        }
    }

    fn unknown(&self, name: &str, known: &[&'static str]) -> String {
        let shown: String = name.chars().take(60).collect();
        let start = match self.schema {
            "" => format!("unknown table or key `{shown}`"),
            schema => format!("unknown key `{shown}` in {}", keys::header(schema)),
        };
        if let Some(near) = suggest::nearest(name, known.iter().copied()) {
            return format!("{start}; did you mean `{near}`?");
        }
        let elsewhere = keys::keys().find(|key| key.name == name).map(|key| key.section);
        let elsewhere =
            elsewhere.or_else(|| keys::subsections("nat").find(|sub| *sub == name).map(|_| "nat"));
        match elsewhere {
            Some(section) => format!("{start}; it belongs in {}", keys::header(section)),
            None => format!("{start}; {}", suggest::hint(name, known.iter().copied())),
        }
    }
}

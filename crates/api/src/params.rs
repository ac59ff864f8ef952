//! Query parameters, declared once: the struct, its parser, its printer and its OpenAPI text come from one list.

use core::net::{IpAddr, Ipv4Addr};

use carrack_base::{Prefix, Prefix4, Proto, REASONS, Reason};
use carrack_nat::row::TcpState;

use crate::failure::Failure;

/// A set of query parameters; each is optional.
pub trait Params: Default + Send + 'static {
    /// Every parameter: name, OpenAPI type, description.
    const TABLE: &'static [(&'static str, &'static str, &'static str)];

    /// Sets one parameter from text; the error is one sentence. Unknown names are the caller's to find.
    ///
    /// # Errors
    /// The value is not of the parameter's type.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String>;

    /// The parameters that are set, as text.
    fn pairs(&self) -> Vec<(&'static str, String)>;

    /// From a raw query string (without the question mark).
    ///
    /// # Errors
    /// An unknown or repeated name (the error suggests the nearest), or a value that does not parse.
    fn from_query(query: &str) -> Result<Self, Failure> {
        let mut params = Self::default();
        let mut seen: Vec<String> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !Self::TABLE.iter().any(|(known, ..)| *known == name) {
                return Err(unknown::<Self>(&name));
            }
            if seen.contains(&name) {
                return Err(Failure::bad_request(format!("the parameter `{name}` is given twice"))
                    .hint("give each parameter once"));
            }
            params.set(&name, &value).map_err(|why| {
                Failure::bad_request(format!("the parameter `{name}` has a bad value")).hint(why)
            })?;
            seen.push(name);
        }
        Ok(params)
    }

    /// As a query string with its question mark; empty when nothing is set.
    fn query(&self) -> String {
        let mut query = String::new();
        for (name, value) in self.pairs() {
            query.push(if query.is_empty() { '?' } else { '&' });
            query.push_str(name);
            query.push('=');
            encode(&value, &mut query);
        }
        query
    }

    /// Is nothing set?
    fn is_empty(&self) -> bool {
        self.pairs().is_empty()
    }
}

/// Of `known`, the word nearest to `word`, when it is near enough to be what was meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = 1 + word.chars().count() / 4;
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn unknown<P: Params>(name: &str) -> Failure {
    let names = P::TABLE.iter().map(|(known, ..)| *known);
    let hint = match nearest(name, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if P::TABLE.is_empty() => "this path takes no parameters".into(),
        None => format!("known here: {}", names.collect::<Vec<_>>().join(", ")),
    };
    Failure::bad_request(format!("unknown parameter `{name}`")).hint(hint)
}

fn decode(text: &str) -> Result<String, Failure> {
    let bad = || {
        Failure::bad_request(format!("`{text}` is not valid percent-encoding"))
            .hint("write a percent sign as %25")
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).ok_or_else(bad);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:,".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// A type that a query parameter (or a command line option) can have.
pub trait Param: Sized {
    /// Its OpenAPI type.
    const KIND: &'static str;
    /// From text; the error is one sentence that says what to write.
    ///
    /// # Errors
    /// The text is no such value.
    fn parse(text: &str) -> Result<Self, String>;
    /// As text.
    fn text(&self) -> String;
}

impl Param for String {
    const KIND: &'static str = "string";
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("it must not be empty".into()) } else { Ok(text.into()) }
    }
    fn text(&self) -> String {
        self.clone()
    }
}

impl Param for bool {
    const KIND: &'static str = "boolean";
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" | "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(format!("`{text}` is neither true nor false")),
        }
    }
    fn text(&self) -> String {
        self.to_string()
    }
}

macro_rules! number_param {
    ($($kind:ty),*) => {$(
        impl Param for $kind {
            const KIND: &'static str = "integer";
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("`{text}` is not a number from 0 to {}", <$kind>::MAX))
            }
            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
number_param!(u16, u32, u64);

macro_rules! prefix_param {
    ($($kind:ty),*) => {$(
        impl Param for $kind {
            const KIND: &'static str = "string";
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: carrack_base::PrefixError| error.0)
            }
            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
prefix_param!(Prefix, Prefix4);

macro_rules! address_param {
    ($($kind:ty, $like:literal;)*) => {$(
        impl Param for $kind {
            const KIND: &'static str = "string";
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("`{text}` is not an {}", $like))
            }
            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
address_param! {
    Ipv4Addr, "IPv4 address; write it like 192.0.2.1";
    IpAddr, "address; write it like 192.0.2.1 or 2001:db8::1";
}

fn one_of<'a>(text: &str, names: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(text, names.clone()) {
        Some(near) => format!("`{text}` is unknown; did you mean `{near}`?"),
        None => {
            format!("`{text}` is unknown; write one of {}", names.into_iter().collect::<Vec<_>>().join(", "))
        }
    }
}

impl Param for Proto {
    const KIND: &'static str = "string";
    fn parse(text: &str) -> Result<Self, String> {
        Self::from_name(text).ok_or_else(|| one_of(text, ["tcp", "udp", "icmp", "other"]))
    }
    fn text(&self) -> String {
        self.name().into()
    }
}

impl Param for TcpState {
    const KIND: &'static str = "string";
    fn parse(text: &str) -> Result<Self, String> {
        let states = (1..=7).map(Self::from_u8);
        let found = states.clone().find(|state| state.name() == text);
        found.ok_or_else(|| one_of(text, states.map(Self::name)))
    }
    fn text(&self) -> String {
        self.name().into()
    }
}

impl Param for Reason {
    const KIND: &'static str = "string";
    fn parse(text: &str) -> Result<Self, String> {
        Self::from_name(text).ok_or_else(|| match nearest(text, REASONS.iter().map(|row| row.name)) {
            Some(near) => format!("`{text}` is no drop reason; did you mean `{near}`?"),
            None => format!("`{text}` is no drop reason; `carrack show counters --all` lists them"),
        })
    }
    fn text(&self) -> String {
        self.name().into()
    }
}

/// Declares a struct of optional query parameters.
macro_rules! params {
    ($(#[doc = $about:literal])* $vis:vis struct $name:ident { $($(#[doc = $doc:literal])* $field:ident: $kind:ty,)* }) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        $vis struct $name { $($(#[doc = $doc])* pub $field: Option<$kind>,)* }

        impl $crate::params::Params for $name {
            const TABLE: &'static [(&'static str, &'static str, &'static str)] = &[
                $((stringify!($field), <$kind as $crate::params::Param>::KIND, concat!($($doc),*)),)*
            ];

            #[allow(unused_variables, reason = "a path without parameters reads none")]
            fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
                $(if name == stringify!($field) {
                    self.$field = Some(<$kind as $crate::params::Param>::parse(value)?);
                    return Ok(());
                })*
                Err(format!("`{name}` is not known here"))
            }

            fn pairs(&self) -> Vec<(&'static str, String)> {
                #[allow(unused_mut, reason = "a path without parameters pushes nothing")]
                let mut pairs = Vec::new();
                $(if let Some(value) = &self.$field {
                    pairs.push((stringify!($field), $crate::params::Param::text(value)));
                })*
                pairs
            }
        }

        impl utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                $crate::params::openapi::<Self>()
            }
        }
    };
}
pub(crate) use params;

/// The OpenAPI text of a set of parameters.
pub(crate) fn openapi<P: Params>() -> Vec<utoipa::openapi::path::Parameter> {
    use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
    use utoipa::openapi::{ObjectBuilder, Required, Type};
    P::TABLE
        .iter()
        .map(|(name, kind, description)| {
            let kind = match *kind {
                "integer" => Type::Integer,
                "boolean" => Type::Boolean,
                _ => Type::String,
            };
            ParameterBuilder::new()
                .name(*name)
                .parameter_in(ParameterIn::Query)
                .required(Required::False)
                .description(Some(description.trim()))
                .schema(Some(ObjectBuilder::new().schema_type(kind).build()))
                .build()
        })
        .collect()
}

#[cfg(test)]
mod tests;

//! Values on the command line: what is wrong with one is said in words, and what it may be.

use std::ops::RangeInclusive;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::generator::Translation;
use carrack_base::text::grouped;

/// Longest measurement, seconds.
const SECONDS_MAX: f64 = 3_600.0;

/// A whole number within these bounds, as `2000000`, `2_000_000` or `2M`.
pub fn number<T: TryFrom<u64>>(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = whole(text).filter(|value| bounds.contains(value));
        value.and_then(|value| T::try_from(value).ok()).ok_or_else(|| {
            let least = grouped(*bounds.start());
            let most = match *bounds.end() {
                u64::MAX => "on".into(),
                most => format!("to {}", grouped(most)),
            };
            format!("it is a whole number from {least} {most}, such as {}", examples(&bounds))
        })
    }
}

/// Numbers that are within the bounds, in all ways they may be written.
fn examples(bounds: &RangeInclusive<u64>) -> String {
    const EXAMPLES: [(u64, &str); 4] =
        [(2_000_000, "2000000, 2_000_000 or 2M"), (2_000, "2000, 2_000 or 2k"), (100, "100"), (2, "2")];
    let fitting = EXAMPLES.into_iter().find(|(value, _)| bounds.contains(value));
    fitting.map_or_else(|| bounds.start().to_string(), |(_, text)| text.into())
}

fn whole(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    let (digits, times) = match digits.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => match digits.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => (digits.as_str(), 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(times)
}

/// What is translated where sessions are measured: a stateless translator has none.
pub fn stateful() -> impl TypedValueParser<Value = Translation> {
    let names = [Translation::Nat44, Translation::Nat64].iter().filter_map(Translation::to_possible_value);
    PossibleValuesParser::new(names).try_map(|name| Translation::from_str(&name, false))
}

/// Seconds to measure for.
pub fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value <= SECONDS_MAX);
    value.ok_or_else(|| format!("it is a number of seconds above 0 and at most {SECONDS_MAX}, such as 2.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        let of = number::<u32>(1_024..=100_000_000);
        for text in ["2000000", "2_000_000", "2M", "2000k"] {
            assert_eq!(of(text), Ok(2_000_000), "{text}");
        }
        for text in
            ["", "M", "-5", "1.5M", "1e6", "1023", "100000001", "99999999999999999999", "20000000000000000M"]
        {
            let why = of(text).unwrap_err();
            assert!(why.contains("from 1,024 to 100,000,000"), "{text}: {why}");
        }
        assert!(number::<u64>(1..=u64::MAX)("0").unwrap_err().contains("from 1 on"));
        assert!(number::<u8>(1..=16)("17").unwrap_err().contains("from 1 to 16"));
    }

    #[test]
    fn examples_are_within_the_bounds_and_are_taken() {
        for bounds in [1..=16, 64..=1_522, 1..=65_536, 1_024..=100_000_000, 3..=7, 1..=u64::MAX] {
            let of = number::<u64>(bounds.clone());
            let why = of("x").unwrap_err();
            let (_, examples) = why.split_once("such as ").unwrap();
            for example in examples.replace(" or ", ", ").split(", ") {
                assert!(of(example).is_ok_and(|value| bounds.contains(&value)), "{why}");
            }
        }
    }

    #[test]
    fn where_sessions_are_measured_no_stateless_translator_is_offered() {
        let command = clap::Command::new("bench");
        let of = |text: &str| stateful().parse_ref(&command, None, text.as_ref()).ok();
        assert_eq!(
            ["nat44", "nat64", "siit"].map(of),
            [Some(Translation::Nat44), Some(Translation::Nat64), None]
        );
        let offered: Vec<_> = stateful().possible_values().unwrap().collect();
        assert_eq!(offered.iter().map(|value| value.get_name()).collect::<Vec<_>>(), ["nat44", "nat64"]);
    }

    #[test]
    fn nothing_is_measured_for_no_time_or_for_ever() {
        assert_eq!(seconds("0.1"), Ok(0.1));
        for text in ["0", "-1", "nan", "inf", "3601", "1 s", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}

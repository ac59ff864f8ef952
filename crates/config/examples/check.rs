//! Prints what is wrong with a config file.
#![forbid(unsafe_code)]

fn main() {
    for path in std::env::args().skip(1) {
        match carrack_config::Config::from_file(&path) {
            Ok((_, warnings)) => warnings.iter().for_each(|warning| println!("{warning}\n")),
            Err(errors) => errors.iter().for_each(|error| println!("{error}\n")),
        }
    }
}

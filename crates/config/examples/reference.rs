//! Writes `docs/config.md` from the table of keys.
#![forbid(unsafe_code)]

fn main() -> std::io::Result<()> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    std::fs::create_dir_all(docs)?;
    std::fs::write(format!("{docs}/config.md"), carrack_config::reference())
}

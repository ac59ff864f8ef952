//! Files over FTP: the data connection is opened by the client, or by the server to where the client says it is.

use anyhow::{Context, Result, bail};

use super::LIMIT;
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// The server connects to the client: PORT and EPRT name an address that only the gateway knows to be the outside one.
pub(super) fn active(lab: &mut Lab) -> Result<String> {
    let old = fetch(lab, &["--ftp-port", "-", "--disable-eprt"])?;
    let new = fetch(lab, &["--ftp-port", "-", "--eprt"])?;
    Ok(format!("{} by PORT, {} by EPRT, SHA-256 equal", megabytes(old), megabytes(new)))
}

/// The client connects to the server.
pub(super) fn passive(lab: &mut Lab) -> Result<String> {
    let old = fetch(lab, &["--ftp-pasv", "--disable-epsv"])?;
    let new = fetch(lab, &["--ftp-pasv", "--epsv"])?;
    Ok(format!("{} by PASV, {} by EPSV, SHA-256 equal", megabytes(old), megabytes(new)))
}

fn megabytes(bytes: usize) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Downloads the smaller file by curl with these options and compares it; its size.
fn fetch(lab: &Lab, options: &[&str]) -> Result<usize> {
    let url = format!("ftp://{}/{}", plan::SERVER, plan::SMALL_FILE);
    let target = lab.dir().join("fetched").display().to_string();
    let mut argv = vec!["curl", "--silent", "--show-error", "--max-time", "20", "--output", &target];
    argv.extend(options);
    argv.push(&url);
    lab.exec(Ns::Sub1, &argv, LIMIT)?.success()?;
    let served = std::fs::read(lab.dir().join("www").join(plan::SMALL_FILE))?;
    let fetched = std::fs::read(&target).context("curl wrote no file")?;
    std::fs::remove_file(&target)?;
    if served != fetched {
        bail!(
            "{} bytes served, other {} bytes fetched with {}",
            served.len(),
            fetched.len(),
            options.join(" ")
        );
    }
    Ok(fetched.len())
}

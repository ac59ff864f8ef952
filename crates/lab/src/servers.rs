//! The real servers of a lab: web, DNS, UDP echo, "who am I", a digest of what is sent, and iperf3 in `inet`, a web server in `sub1`.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};

use crate::needs::find;
use crate::plan::{self, Ns};

/// A server to start.
pub(crate) struct Server {
    pub ns: Ns,
    /// Name for people and of its log.
    pub what: &'static str,
    pub argv: Vec<String>,
    /// Listening socket that tells that it is ready: `tcp` or `udp`, and port.
    pub listens: (&'static str, u16),
}

/// All servers of a lab whose files are in `dir`.
pub(crate) fn all(dir: &Path) -> Vec<Server> {
    let www = dir.join("www").display().to_string();
    let home = dir.join("home").display().to_string();
    let names = format!("--host-record={},{}", plan::SERVER_NAME, plan::SERVER);
    // Reads the question first: closing a connection with unread data resets it.
    let whoami = "SYSTEM:read question; echo $SOCAT_PEERADDR $SOCAT_PEERPORT";
    let server = |ns, what, listens, argv: &[&str]| Server {
        ns,
        what,
        argv: argv.iter().map(|word| program(word)).collect(),
        listens,
    };
    let (http, echo, who) =
        (plan::HTTP_PORT.to_string(), format!("UDP4-RECVFROM:{},fork", plan::ECHO_PORT), plan::WHOAMI_PORT);
    let digest = format!("TCP4-LISTEN:{},fork,reuseaddr,backlog=16", plan::DIGEST_PORT);
    let inside_http = plan::FORWARD_PORT.to_string();
    let listen_dns = format!("--listen-address={}", plan::DNS);
    vec![
        // First: the others look their own address up when they start.
        server(
            Ns::Inet,
            "dns",
            ("udp", 53),
            &[
                "dnsmasq",
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--no-resolv",
                "--no-hosts",
                "--user=root",
                "--pid-file=",
                "--bind-interfaces",
                "--log-queries",
                "--log-facility=-",
                &listen_dns,
                &names,
            ],
        ),
        server(
            Ns::Inet,
            "web",
            ("tcp", plan::HTTP_PORT),
            &["python3", "-m", "http.server", &http, "--directory", &www],
        ),
        server(Ns::Inet, "echo", ("udp", plan::ECHO_PORT), &["socat", "-b65507", &echo, "PIPE"]),
        server(
            Ns::Inet,
            "whoami-udp",
            ("udp", who),
            &["socat", "-t8", &format!("UDP4-RECVFROM:{who},fork,bind={}", plan::SERVER), whoami],
        ),
        // One socket for each address: an unbound one would answer from the other address.
        server(
            Ns::Inet,
            "whoami-narrow",
            ("udp", who),
            &["socat", "-t8", &format!("UDP4-RECVFROM:{who},fork,bind={}", plan::NARROW), whoami],
        ),
        server(
            Ns::Inet,
            "whoami-tcp",
            ("tcp", who),
            &["socat", "-t8", &format!("TCP4-LISTEN:{who},fork,reuseaddr,backlog=64"), whoami],
        ),
        server(
            Ns::Inet,
            "digest",
            ("tcp", plan::DIGEST_PORT),
            &["socat", "-t8", &digest, "SYSTEM:sha256sum"],
        ),
        server(
            Ns::Inet,
            "ftp",
            ("tcp", plan::FTP_PORT),
            &["vsftpd", &dir.join("vsftpd.conf").display().to_string()],
        ),
        server(Ns::Inet, "iperf3", ("tcp", plan::IPERF_PORT), &["iperf3", "-s", "--forceflush"]),
        server(
            Ns::Sub1,
            "home-web",
            ("tcp", plan::FORWARD_PORT),
            &["python3", "-m", "http.server", &inside_http, "--directory", &home],
        ),
    ]
}

/// Anonymous FTP of the web server's files.
fn ftp_config(www: &Path) -> String {
    format!(
        "listen=YES\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nanon_root={}\nwrite_enable=NO\n\
         connect_from_port_20=YES\nseccomp_sandbox=NO\nport_promiscuous=NO\nxferlog_enable=NO\n",
        www.display()
    )
}

/// Writes the served files: random ones to download, a page behind the port forward.
pub(crate) fn write_files(dir: &Path) -> Result<()> {
    let (www, home) = (dir.join("www"), dir.join("home"));
    fs::create_dir_all(&www)?;
    fs::create_dir_all(&home)?;
    fs::write(home.join("index.html"), plan::HOME_PAGE)?;
    fs::write(dir.join("vsftpd.conf"), ftp_config(&www))?;
    fs::write(www.join("index.html"), "Carrack's demonstration Internet.\n")?;
    for (name, bytes) in [(plan::BIG_FILE, plan::BIG_FILE_BYTES), (plan::SMALL_FILE, plan::SMALL_FILE_BYTES)]
    {
        let mut content = Vec::new();
        fs::File::open("/dev/urandom")?
            .take(bytes)
            .read_to_end(&mut content)
            .context("cannot read /dev/urandom")?;
        fs::write(www.join(name), content)?;
    }
    Ok(())
}

fn program(word: &str) -> String {
    match word {
        "dnsmasq" | "python3" | "socat" | "iperf3" => {
            find(word).map_or_else(|| word.to_owned(), |path| path.display().to_string())
        }
        _ => word.to_owned(),
    }
}

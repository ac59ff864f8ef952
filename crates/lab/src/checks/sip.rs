//! A call by SIP: the address and the ports for speech are in the messages, and who is called speaks first.

use std::fs;

use anyhow::{Result, bail};

use super::{LIMIT, delivered};
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// Half a second of speech in packets of 20 ms.
const PACKETS: u64 = 25;
const BYTES_PER_PACKET: u64 = 160;
/// Fewer is a failure; the last ones may be cut off by the end of the call.
const PACKETS_MIN: u64 = 20;
/// Messages of SIP that each end gets, when none has to be repeated.
const MESSAGES: u64 = 3;
const CALLEE: &str = "sip-callee";

/// Packets of speech that each end heard.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Who called: the other speaks to it first.
    pub caller: u64,
    /// Who was called.
    pub callee: u64,
}

/// A call with speech both ways.
pub(super) fn call(lab: &mut Lab) -> Result<String> {
    let Heard { caller, callee } = call_between(lab, plan::SUB1, plan::SERVER)?;
    if caller.min(callee) < PACKETS_MIN {
        bail!("the caller heard {caller} and the callee {callee} packets of {PACKETS}");
    }
    Ok(format!("caller heard {caller} packets of speech, callee {callee}"))
}

/// SIPp calls SIPp: from this address of the first subscriber to the server by this one.
///
/// # Errors
/// What the calling program printed when the call was not made.
pub fn call_between(lab: &mut Lab, caller: &str, server: &str) -> Result<Heard> {
    let before = [delivered(lab, Ns::Sub1)?, delivered(lab, Ns::Inet)?];
    call_from(lab, caller, server)?;
    let heard = |now: u64, then: u64| (now - then).saturating_sub(MESSAGES).min(PACKETS);
    Ok(Heard {
        caller: heard(delivered(lab, Ns::Sub1)?, before[0]),
        callee: heard(delivered(lab, Ns::Inet)?, before[1]),
    })
}

fn call_from(lab: &mut Lab, caller: &str, server: &str) -> Result<()> {
    let media = lab.dir().join("speech.ulaw");
    fs::write(&media, vec![0xff; (PACKETS * BYTES_PER_PACKET) as usize])?;
    let scenario = |name: &str, text: &str| -> Result<String> {
        let path = lab.dir().join(name);
        fs::write(&path, text.replace("@MEDIA@", &media.display().to_string()))?;
        Ok(path.display().to_string())
    };
    let callee = scenario("callee.xml", include_str!("sip/callee.xml"))?;
    let own = scenario("caller.xml", include_str!("sip/caller.xml"))?;
    let trace = lab.dir().join("callee.msg").display().to_string();
    let argv = [
        "sipp",
        "-sf",
        &callee,
        "-i",
        plan::SERVER,
        "-p",
        "5060",
        "-mi",
        plan::SERVER,
        "-m",
        "1",
        "-nostdin",
        "-trace_msg",
        "-message_file",
        &trace,
    ];
    lab.start(Ns::Inet, CALLEE, &argv)?;
    let target = if server.contains(':') { format!("[{server}]:5060") } else { format!("{server}:5060") };
    let argv = [
        "sipp",
        "-sf",
        &own,
        "-i",
        caller,
        "-p",
        "5060",
        "-mi",
        caller,
        "-m",
        "1",
        "-nostdin",
        "-timeout",
        "20s",
        "-timeout_error",
        &target,
    ];
    let done = lab.exec(Ns::Sub1, &argv, LIMIT);
    lab.stop(CALLEE);
    done?.success()?;
    Ok(())
}

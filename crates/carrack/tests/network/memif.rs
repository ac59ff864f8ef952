//! Two daemons joined by shared memory: an access router in front of the NAT. Either dies and comes back.

use std::fs;

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab};
use serde_json::Value;

use crate::{LIMIT, assert_conservation, lab, must, pings, replace, until};

/// The link between the two: the access router's end, and the NAT's.
const ACCESS: &str = "10.99.0.1";
const NAT: &str = "10.99.0.2";

/// The access router: subscribers on the lab's wire, no translation.
fn access() -> String {
    format!(
        "[system]\nrun_dir = \"@LAB@/access\"\n\n[workers]\ncount = 1\nidle = \"sleep\"\n\n\
         [memory]\nhuge_pages = \"off\"\ndpdk_mb = 128\nframes = 8192\nsessions = 1024\nmappings = 1024\nsubscribers = 64\n\n\
         [api]\nsocket = \"@LAB@/access/api.sock\"\n\n\
         [[interface]]\nname = \"inside\"\ndevice = \"af_xdp:inside\"\naddress = [\"{}/24\"]\n\n\
         [[interface]]\nname = \"core\"\ndevice = \"memif:@LAB@/core.sock,id=0,role=client\"\naddress = [\"{ACCESS}/30\"]\n\n\
         [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"{NAT}\"\n",
        plan::INSIDE_GATEWAY
    )
}

/// The lab's NAT with shared memory in place of its inside wire.
fn core(config: &str) -> String {
    let config =
        replace(config, "device = \"af_xdp:inside\"", "device = \"memif:@LAB@/core.sock,id=0,role=server\"");
    let own = format!("address = [\"{}/24\"]", plan::INSIDE_GATEWAY);
    let config = replace(&config, &own, &format!("address = [\"{NAT}/30\"]"));
    let back = format!("\n[[route]]\nprefix = \"{}\"\nvia = \"{ACCESS}\"\n\n[[route]]", plan::INSIDE_NET);
    replace(&config, "\n[[route]]", &back)
}

fn start_access(lab: &mut Lab) {
    let file = lab.dir().join("access.toml").display().to_string();
    lab.start(Ns::Carrack, "access", &[env!("CARGO_BIN_EXE_carrack"), "run", "-c", &file]).unwrap();
}

/// The shared-memory interface as the NAT's daemon shows it.
fn link(lab: &Lab) -> Value {
    let done = lab.carrack(&["show", "interfaces", "--interface", "inside", "--json"], LIMIT).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&done.success().unwrap().stdout).unwrap();
    rows.into_iter().next().expect("the interface is shown")
}

#[test]
fn traffic_goes_on_without_a_restart_when_a_shared_memory_peer_dies_and_comes_back() {
    let Some(mut lab) = lab("memif", Io::AfXdp, |config| config) else { return };
    lab.stop("router");
    let dir = lab.dir().display().to_string();
    fs::create_dir_all(lab.dir().join("access")).unwrap();
    fs::write(lab.dir().join("access.toml"), access().replace("@LAB@", &dir)).unwrap();
    // It looks for the other end until that is there.
    start_access(&mut lab);
    until(&lab, "the client runs without a server", || lab.dir().join("access/api.sock").exists());
    lab.set_config(&core(&carrack_lab::config(Io::AfXdp))).unwrap();
    lab.start_router().unwrap();
    until(&lab, "the two find each other", || link(&lab)["link"] == true);
    assert_eq!(link(&lab)["link_resumed"], 0);

    for times in 1..=2 {
        lab.kill("access");
        until(&lab, "the dead peer is noticed", || link(&lab)["link"] == false);
        assert!(!pings(&lab, Ns::Sub1, plan::SERVER), "there is nobody in between");
        start_access(&mut lab);
        until(&lab, "traffic goes on", || pings(&lab, Ns::Sub1, plan::SERVER));
        until(&lab, "the link is counted", || link(&lab)["link_resumed"] == times);
    }
    let page = must(&lab, Ns::Sub2, &format!("curl --silent --max-time 5 http://{}/", plan::SERVER));
    assert!(page.contains("Internet"), "{page}");
    let log = lab.log("router");
    assert_eq!(log.matches("port inside has lost its link").count(), 2, "{log}");
    assert_eq!(log.matches("port inside has its link again").count(), 2, "{log}");
    assert_conservation(&lab);

    // The other one: its killed server leaves a socket behind, and the client looks for the next one.
    lab.kill("router");
    assert!(!pings(&lab, Ns::Sub1, plan::SERVER), "there is nobody in between");
    lab.start_router().unwrap();
    assert!(lab.running("access"));
    assert!(lab.log("access").contains("port core has its link again"), "{}", lab.log("access"));
    assert_conservation(&lab);
}

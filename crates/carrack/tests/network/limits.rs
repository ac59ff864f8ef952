//! What happens when something runs out.

use carrack_lab::Io;
use carrack_lab::plan::Ns;

use crate::{assert_conservation, counters, lab, outside_of, replace};

#[test]
fn exhausted_ports_refuse_new_calls_but_end_no_old_one() {
    // RFC 6888 REQ-11: nothing is deleted to make room. RFC 6888 REQ-4: the limit is the subscriber's own.
    let edit =
        |config: String| replace(&config, "block_size = 512", "block_size = 8\nblocks_per_subscriber = 1");
    let Some(lab) = lab("ports", Io::AfXdp, edit) else { return };
    let granted: Vec<(u16, String)> = (20_000..20_008)
        .map(|port| (port, outside_of(&lab, Ns::Sub1, port).expect("a port of the block was refused")))
        .collect();
    for port in 20_008..20_010 {
        assert_eq!(outside_of(&lab, Ns::Sub1, port), None, "a ninth port out of a block of eight");
    }
    for (port, before) in granted {
        assert_eq!(
            outside_of(&lab, Ns::Sub1, port).as_deref(),
            Some(before.as_str()),
            "an old mapping changed"
        );
    }
    assert!(outside_of(&lab, Ns::Sub2, 20_000).is_some(), "another subscriber suffers");
    let counters = counters(&lab);
    assert!(counters["dropped"].as_u64() > Some(0), "{counters:#}");
    assert_conservation(&lab);
}

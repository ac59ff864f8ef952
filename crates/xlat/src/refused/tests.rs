use super::*;

#[test]
fn senders_hear_what_the_rfc_names_and_else_that_it_is_prohibited() {
    // RFC 7915 §4.4 and §5.4
    let prohibited4 = Answer::Icmpv4(icmpv4::ErrorMessage::Unreachable { code: 13 });
    let prohibited6 = Answer::Icmpv6(icmpv6::ErrorMessage::Unreachable { code: 1 });
    for (refused, answer) in [
        (Refused::ZeroUdp, prohibited4),
        (Refused::ZeroUdpFragment, prohibited4),
        (Refused::FragmentedIcmpV4, prohibited4),
        (Refused::ForeignProtocolV4, prohibited4),
        (Refused::HeaderBehindFragment, prohibited6),
        (Refused::ForeignProtocolV6, prohibited6),
        (Refused::SourceRoute, Answer::Icmpv4(icmpv4::ErrorMessage::Unreachable { code: 5 })),
        // A message of ICMPv6 is not answered, nor what should be dropped in silence, nor what is malformed.
        (Refused::FragmentedIcmpV6, Answer::Silence),
        (Refused::IcmpWithoutCounterpart, Answer::Silence),
        (Refused::TransportCut, Answer::Silence),
        (Refused::NestedError, Answer::Silence),
    ] {
        assert_eq!(refused.answer(), answer, "{refused}");
    }
}

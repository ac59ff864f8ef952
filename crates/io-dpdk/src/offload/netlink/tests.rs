use super::*;

#[test]
fn the_loopback_is_no_veth_and_has_no_xdp_program() {
    let link = link(1).expect("every namespace has a loopback, number 1");
    assert_eq!((link.kind, link.peer_index, link.xdp_attached), (None, None, false));
}

#[test]
fn a_missing_link_is_an_error_with_the_kernels_reason() {
    let error = link(0x7fff_fff0).expect_err("no such link").to_string();
    assert!(error.contains("No such device"), "{error}");
}

#[test]
fn attributes_end_at_the_first_that_does_not_fit() {
    let mut body = Vec::new();
    push(&mut body, 1, b"abc");
    push(&mut body, 2 | NLA_F_NESTED, b"");
    let whole = body.len();
    push(&mut body, 3, b"cut off");
    for length in 0..=body.len() {
        let kinds: Vec<u16> = attributes(&body[..length]).map(|(kind, _)| kind).collect();
        let expected: &[u16] = match length {
            0..7 => &[],
            7..12 => &[1],
            length if length < whole + 11 => &[1, 2],
            _ => &[1, 2, 3],
        };
        assert_eq!(kinds, expected, "{length} bytes");
    }
    assert_eq!(attribute(&body, 1), Some(&b"abc"[..]));
}

#[test]
fn no_answer_however_cut_makes_the_reader_panic() {
    let answer: Vec<u8> = (0..64).collect();
    for length in 0..answer.len() {
        let _ = body_of(&answer[..length], "reading");
    }
}

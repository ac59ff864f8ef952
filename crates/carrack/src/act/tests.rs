use carrack_api::pcapng::Writer;
use carrack_api::types::CapturedPacket;

use super::*;

fn capture() -> Vec<u8> {
    let mut writer = Writer::new().unwrap();
    for n in 0..3 {
        let packet = CapturedPacket {
            lost: 3 * n,
            unix_ns: n,
            interface: "inside".into(),
            point: "rx",
            reason: (n == 2).then_some(carrack_base::Reason::NatFiltered),
            original_len: 5,
            bytes: vec![1, 2, 3, 4, 5],
        };
        writer.packet(&packet).unwrap();
    }
    writer.take()
}

#[test]
fn a_capture_cut_anywhere_leaves_only_whole_blocks() {
    let bytes = capture();
    for cut in 0..=bytes.len() {
        let (mut blocks, mut file) = (Blocks::default(), Vec::new());
        let (first, rest) = bytes.split_at(cut);
        blocks.add(first, &mut file).unwrap();
        let mut at = 0;
        while let Some((_, len)) = block_at(&file, at, blocks.big.unwrap_or(false)) {
            at += len;
        }
        assert_eq!(at, file.len(), "cut at {cut}");
        blocks.add(rest, &mut file).unwrap();
        assert_eq!((file == bytes, blocks.packets, blocks.lost), (true, 3, 9), "cut at {cut}");
    }
}

#[test]
fn nonsense_is_no_capture() {
    let mut file = Vec::new();
    assert!(Blocks::default().add(b"{\"error\": \"no\"}", &mut file).is_err());
    assert!(file.is_empty());
}

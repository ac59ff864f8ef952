//! The same of IPv6: no header checksum, and the addresses are for others to look at.

use std::arch::x86_64::{
    __m256i, _mm_setr_epi8, _mm256_add_epi64, _mm256_and_si256, _mm256_cmpeq_epi64, _mm256_cmpgt_epi64,
    _mm256_or_si256, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64,
    _mm256_testz_si256, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use carrack_frame::Frame;

use super::{Lengths, QUAD, Seen, Wanted, control_bits, halves, links_differ, pairs, room, twice, words_of};
use crate::{COMMON_BYTES_SIX, Pass, Pattern};

/// Bytes of an IPv6 header.
const HEADER_BYTES: i64 = 40;

#[target_feature(enable = "avx2")]
pub(super) fn recognise<const TAG: usize>(pattern: &Pattern, frames: &[Frame], passes: &mut [Pass]) -> usize {
    let wanted = Wanted::new(pattern);
    let groups = frames.as_chunks::<QUAD>().0.iter().zip(passes.as_chunks_mut::<QUAD>().0);
    let mut known = 0;
    for (frames, passes) in groups {
        let Some(heads) = Heads::read::<TAG>(frames) else { break };
        let Some(seen) = heads.seen::<TAG>(&wanted) else { break };
        let nothing = [_mm256_setzero_si256(); 2];
        seen.put_rows(UNKNOWN, nothing, heads.ports(), &wanted, passes);
        known += QUAD;
    }
    known
}

/// A row of which no more is known than that it is one of IPv6.
const UNKNOWN: [u64; 4] = words_of(Pass { six: true, ..Pass::UNKNOWN });

/// Of four frames, what is looked at: pairs as in those of IPv4.
struct Heads {
    /// Bytes 0 to 15.
    link: [__m256i; 2],
    /// Bytes 8 to 23, where there are tags.
    behind: [__m256i; 2],
    /// As if there were no tags, the word at byte 16, by packet: flow label, payload length, next header, hop limit.
    header: __m256i,
    /// The word at byte 54, by packet: ports, and UDP's length and checksum.
    ports: __m256i,
    /// The word at byte 62, by packet, in which TCP has its header's length and control bits.
    flags: __m256i,
    /// Bytes of the frames behind their link headers, by packet.
    room: __m256i,
}

impl Heads {
    /// `None` when one of them is shorter than a common frame.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn read<const TAG: usize>(frames: &[Frame; QUAD]) -> Option<Self> {
        let bytes = frames.each_ref().map(Frame::bytes);
        if bytes.iter().any(|frame| frame.len() < COMMON_BYTES_SIX + TAG) {
            return None;
        }
        // SAFETY: 16 bytes that end at TAG + 70 at most; each frame has TAG + 72 or more.
        let pairs = |at: usize| unsafe { pairs(&bytes, at) };
        let (header, transport) = (pairs(TAG + 16), pairs(TAG + 54));
        Some(Self {
            link: pairs(0),
            behind: pairs(if TAG > 0 { 8 } else { 0 }),
            header: _mm256_unpacklo_epi64(header[0], header[1]),
            ports: _mm256_unpacklo_epi64(transport[0], transport[1]),
            flags: _mm256_unpackhi_epi64(transport[0], transport[1]),
            room: room::<TAG>(&bytes),
        })
    }

    /// What is seen of four common packets, `None` when one of them is not. It asks what `recognise_six` of `pipeline` asks,
    /// and whether there is a state for it.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn seen<const TAG: usize>(&self, wanted: &Wanted) -> Option<Seen> {
        let all = |word: i64| _mm256_set1_epi64x(word);
        let zero = _mm256_setzero_si256();
        let mut bad = links_differ::<TAG>(&self.link, &self.behind, wanted);

        let payload = _mm256_shuffle_epi8(self.header, halves(2));
        let total = _mm256_add_epi64(payload, all(HEADER_BYTES));
        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi64(total, self.room));
        let hops = _mm256_and_si256(self.header, all(0xfe << 40));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi64(hops, zero));

        let protocol = _mm256_and_si256(_mm256_srli_epi64::<32>(self.header), all(0xff));
        let is_udp = _mm256_cmpeq_epi64(protocol, all(17));
        let is_tcp = _mm256_cmpeq_epi64(protocol, all(6));
        bad = _mm256_or_si256(bad, _mm256_xor_si256(_mm256_or_si256(is_udp, is_tcp), all(-1)));

        let length = Lengths {
            datagram: _mm256_shuffle_epi8(self.ports, halves(4)),
            header: _mm256_and_si256(_mm256_srli_epi64::<34>(self.flags), all(0x3c)),
            payload,
        };
        bad = _mm256_or_si256(bad, length.differ(is_udp));
        // RFC 8200 §8.1: UDP has a checksum.
        let has_none = _mm256_cmpeq_epi64(_mm256_srli_epi64::<48>(self.ports), zero);
        bad = _mm256_or_si256(bad, _mm256_and_si256(has_none, is_udp));
        let (is_odd, is_first) = control_bits(_mm256_srli_epi64::<40>(self.flags), wanted);
        bad = _mm256_or_si256(bad, _mm256_and_si256(is_odd, is_tcp));
        (_mm256_testz_si256(bad, bad) == 1).then_some(Seen { total, is_udp, is_first })
    }

    /// Source and destination port, the source in the upper half of four bytes.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn ports(&self) -> __m256i {
        let turn = twice(_mm_setr_epi8(3, 2, 1, 0, -1, -1, -1, -1, 11, 10, 9, 8, -1, -1, -1, -1));
        _mm256_shuffle_epi8(self.ports, turn)
    }
}

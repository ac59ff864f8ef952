//! Four packets at once with AVX2: each of four 64-bit lanes is a packet.

mod sixes;

use std::arch::x86_64::{
    __m128i, __m256i, _mm_setr_epi8, _mm_storeu_si128, _mm256_add_epi32, _mm256_add_epi64,
    _mm256_alignr_epi8, _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_epi8,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_cmpeq_epi32, _mm256_cmpeq_epi64,
    _mm256_cmpgt_epi64, _mm256_extracti128_si256, _mm256_loadu2_m128i, _mm256_or_si256, _mm256_set_epi64x,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi64, _mm256_srli_epi32,
    _mm256_srli_epi64, _mm256_sub_epi64, _mm256_testz_si256, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64,
    _mm256_xor_si256,
};

use carrack_base::Proto;
use carrack_frame::Frame;

use crate::{COMMON_BYTES, Pass, Pattern};

/// Packets at a time.
const QUAD: usize = 4;
/// Ethernet without tags.
const UNTAGGED: i64 = 14;
/// IPv4 without options.
const HEADER_BYTES: i64 = 20;

/// Says that this processor has AVX2.
#[derive(Debug, Clone, Copy)]
pub struct Quads(());

impl Quads {
    /// If it has.
    #[must_use]
    pub fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Recognises common IPv4 packets in groups of four, up to the first group in which one is not: how many. `TAG` is the
    /// bytes of the tags between link header and packet. A pass becomes what is known of its packet, with the second word
    /// of the session's key in the place of the hash; passes behind the last group are left as they are.
    #[must_use]
    pub fn recognise<const TAG: usize>(
        self,
        pattern: &Pattern,
        frames: &[Frame],
        passes: &mut [Pass],
    ) -> usize {
        // SAFETY: a value of this type is only made where the processor has AVX2.
        unsafe { recognise::<TAG>(pattern, frames, passes) }
    }

    /// The same of common IPv6 packets. Their passes have neither addresses nor hash.
    #[must_use]
    pub fn recognise_six<const TAG: usize>(
        self,
        pattern: &Pattern,
        frames: &[Frame],
        passes: &mut [Pass],
    ) -> usize {
        // SAFETY: a value of this type is only made where the processor has AVX2.
        unsafe { sixes::recognise::<TAG>(pattern, frames, passes) }
    }
}

#[target_feature(enable = "avx2")]
fn recognise<const TAG: usize>(pattern: &Pattern, frames: &[Frame], passes: &mut [Pass]) -> usize {
    let wanted = Wanted::new(pattern);
    let groups = frames.as_chunks::<QUAD>().0.iter().zip(passes.as_chunks_mut::<QUAD>().0);
    let mut known = 0;
    for (frames, passes) in groups {
        let Some(heads) = Heads::read::<TAG>(frames) else { break };
        let Some(seen) = Seen::in_heads::<TAG>(&heads, &wanted) else { break };
        seen.note(&heads, &wanted, passes);
        known += QUAD;
    }
    known
}

/// The pattern, each word in all places in which it is compared.
struct Wanted {
    link: __m256i,
    masks: __m256i,
    behind: __m256i,
    behind_masks: __m256i,
    mac_tail: __m256i,
    key: __m256i,
    udp: __m256i,
    tcp: __m256i,
    first_syn: __m256i,
    /// All ones where a first SYN is common.
    takes_first_syn: __m256i,
    /// All ones where destinations are checked.
    checks_destination: __m256i,
}

impl Wanted {
    #[target_feature(enable = "avx2")]
    fn new(pattern: &Pattern) -> Self {
        let all = |word: u64| _mm256_set1_epi64x(word as i64);
        let pairs =
            |[low, high]: [u64; 2]| _mm256_set_epi64x(high as i64, low as i64, high as i64, low as i64);
        let (link, masks, states) = (pattern.link, pattern.masks, pattern.states);
        let flag = |is: bool| all(if is { u64::MAX } else { 0 });
        Self {
            link: pairs([link[0], link[1]]),
            masks: pairs([masks[0], masks[1]]),
            behind: pairs([link[1], link[2]]),
            behind_masks: pairs([0, masks[2]]),
            mac_tail: pairs([0, pattern.mac_tail.into()]),
            key: all(pattern.key),
            udp: all(states.udp.into()),
            tcp: all(states.tcp.into()),
            first_syn: all(states.first_syn.unwrap_or(0).into()),
            takes_first_syn: flag(states.first_syn.is_some()),
            checks_destination: flag(pattern.checks_destination),
        }
    }
}

/// The first bytes of four frames. Of two vectors with one name the first has packets 0 and 2, the second 1 and 3.
struct Heads {
    /// Bytes 0 to 15.
    link: [__m256i; 2],
    /// Bytes 8 to 23, where there are tags.
    behind: [__m256i; 2],
    /// From here on as if there were no tags. Bytes 0 to 15.
    before: [__m256i; 2],
    /// Bytes 16 to 31.
    low: [__m256i; 2],
    /// Bytes 32 to 47.
    high: [__m256i; 2],
    /// Bytes of the frames behind their link headers, by packet.
    room: __m256i,
}

impl Heads {
    /// `None` when one of them is shorter than a common frame.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn read<const TAG: usize>(frames: &[Frame; QUAD]) -> Option<Self> {
        let bytes = frames.each_ref().map(Frame::bytes);
        if bytes.iter().any(|frame| frame.len() < COMMON_BYTES + TAG) {
            return None;
        }
        // SAFETY: 16 bytes that end at 24, or at TAG + 48, at most; each frame has TAG + 52 or more.
        let pairs = |at: usize| unsafe { pairs(&bytes, at) };
        Some(Self {
            link: pairs(0),
            behind: pairs(if TAG > 0 { 8 } else { 0 }),
            before: pairs(TAG),
            low: pairs(TAG + 16),
            high: pairs(TAG + 32),
            room: room::<TAG>(&bytes),
        })
    }
}

/// Sixteen bytes of each frame from `at`.
///
/// # Safety
/// Each frame has so many.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn pairs(frames: &[&[u8]; QUAD], at: usize) -> [__m256i; 2] {
    let [a, b, c, d] = frames.map(<[u8]>::as_ptr);
    // SAFETY: as the caller says.
    unsafe {
        [
            _mm256_loadu2_m128i(c.add(at).cast(), a.add(at).cast()),
            _mm256_loadu2_m128i(d.add(at).cast(), b.add(at).cast()),
        ]
    }
}

/// Bytes of the frames behind their link headers.
#[target_feature(enable = "avx2")]
#[inline]
fn room<const TAG: usize>(frames: &[&[u8]; QUAD]) -> __m256i {
    let [a, b, c, d] = frames.map(|frame| frame.len() as i64 - TAG as i64 - UNTAGGED);
    _mm256_set_epi64x(d, c, b, a)
}

/// What the headers of four common packets say, by packet.
struct Seen {
    total: __m256i,
    /// All ones for UDP.
    is_udp: __m256i,
    /// All ones for a first SYN.
    is_first: __m256i,
}

impl Seen {
    /// `None` when one of them is not common. It asks what `recognise` of `pipeline` asks.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn in_heads<const TAG: usize>(heads: &Heads, wanted: &Wanted) -> Option<Self> {
        let all = |word: i64| _mm256_set1_epi64x(word);
        // Of each packet, in its lane: the word at byte 8, 16, 24, 32, 40.
        let word1 = _mm256_unpackhi_epi64(heads.before[0], heads.before[1]);
        let word2 = _mm256_unpacklo_epi64(heads.low[0], heads.low[1]);
        let word3 = _mm256_unpackhi_epi64(heads.low[0], heads.low[1]);
        let word4 = _mm256_unpacklo_epi64(heads.high[0], heads.high[1]);
        let word5 = _mm256_unpackhi_epi64(heads.high[0], heads.high[1]);

        let mut bad = links_differ::<TAG>(&heads.link, &heads.behind, wanted);

        // Bytes 16 to 23: total length, identification, fragment, TTL, protocol.
        bad = _mm256_or_si256(bad, _mm256_and_si256(word2, all(0xff3f << 32)));
        let total = _mm256_shuffle_epi8(word2, halves(0));
        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi64(total, heads.room));
        let has_ttl = _mm256_and_si256(word2, all(0xfe << 48));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi64(has_ttl, _mm256_setzero_si256()));
        bad = _mm256_or_si256(bad, header_sum(word1, word2, word3, word4));

        let protocol = _mm256_srli_epi64::<56>(word2);
        let is_udp = _mm256_cmpeq_epi64(protocol, all(17));
        let is_tcp = _mm256_cmpeq_epi64(protocol, all(6));
        bad = _mm256_or_si256(bad, _mm256_xor_si256(_mm256_or_si256(is_udp, is_tcp), all(-1)));

        let length = Lengths {
            datagram: _mm256_shuffle_epi8(word4, halves(6)),
            header: _mm256_and_si256(_mm256_srli_epi64::<50>(word5), all(0x3c)),
            payload: _mm256_sub_epi64(total, all(HEADER_BYTES)),
        };
        bad = _mm256_or_si256(bad, length.differ(is_udp));
        let (is_odd, is_first) = control_bits(_mm256_srli_epi64::<56>(word5), wanted);
        bad = _mm256_or_si256(bad, _mm256_and_si256(is_odd, is_tcp));

        bad = _mm256_or_si256(bad, _mm256_and_si256(not_in_transit(word3), wanted.checks_destination));
        (_mm256_testz_si256(bad, bad) == 1).then_some(Self { total, is_udp, is_first })
    }

    /// Fills the rows.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn note(&self, heads: &Heads, wanted: &Wanted, passes: &mut [Pass; QUAD]) {
        let all = |word: u64| _mm256_set1_epi64x(word as i64);
        // Bytes 26 to 33 the other way round are the addresses, 34 to 37 behind four zeroes the ports.
        let turn = twice(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, -1, -1, -1, -1, 11, 10, 9, 8));
        let proto = |proto: Proto| all((proto as u64) << 8);
        let key = _mm256_or_si256(
            wanted.key,
            _mm256_blendv_epi8(proto(Proto::Tcp), proto(Proto::Udp), self.is_udp),
        );
        let zero = _mm256_setzero_si256();
        let ends = [
            _mm256_or_si256(
                _mm256_shuffle_epi8(_mm256_alignr_epi8::<10>(heads.high[0], heads.low[0]), turn),
                _mm256_unpacklo_epi64(zero, key),
            ),
            _mm256_or_si256(
                _mm256_shuffle_epi8(_mm256_alignr_epi8::<10>(heads.high[1], heads.low[1]), turn),
                _mm256_unpackhi_epi64(zero, key),
            ),
        ];
        let ports = _mm256_srli_epi64::<32>(_mm256_unpackhi_epi64(ends[0], ends[1]));
        self.put_rows(UNKNOWN, ends, ports, wanted, passes);
    }

    /// Writes the rows: what is known beforehand, the two words of each packet's key, its ports.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn put_rows(
        &self,
        [_, _, ports, state]: [u64; 4],
        ends: [__m256i; 2],
        seen_ports: __m256i,
        wanted: &Wanted,
        passes: &mut [Pass; QUAD],
    ) {
        let all = |word: u64| _mm256_set1_epi64x(word as i64);
        let ports = _mm256_or_si256(seen_ports, all(ports));
        let tcp = _mm256_blendv_epi8(wanted.tcp, wanted.first_syn, self.is_first);
        let state = _mm256_or_si256(_mm256_blendv_epi8(tcp, wanted.udp, self.is_udp), all(state));
        let state = _mm256_or_si256(state, _mm256_slli_epi64::<16>(self.total));
        let rest = [_mm256_unpacklo_epi64(ports, state), _mm256_unpackhi_epi64(ports, state)];
        let [a, b, c, d] = passes;
        put(ends[0], rest[0], a, c);
        put(ends[1], rest[1], b, d);
    }
}

/// What a packet has behind its IP header, in bytes.
struct Lengths {
    /// By UDP's header.
    datagram: __m256i,
    /// TCP's header.
    header: __m256i,
    /// By the IP header.
    payload: __m256i,
}

impl Lengths {
    /// Not zero where UDP's length or TCP's header is none: at least 8 and 20 bytes, at most what the packet has.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn differ(&self, is_udp: __m256i) -> __m256i {
        let all = |word: i64| _mm256_set1_epi64x(word);
        let length = _mm256_blendv_epi8(self.header, self.datagram, is_udp);
        let least = _mm256_blendv_epi8(all(20), all(8), is_udp);
        _mm256_or_si256(_mm256_cmpgt_epi64(least, length), _mm256_cmpgt_epi64(length, self.payload))
    }
}

/// All ones where TCP's control bits, the lowest eight, are none of a common packet, and where they are those of a first SYN
/// that is.
#[target_feature(enable = "avx2")]
#[inline]
fn control_bits(bits: __m256i, wanted: &Wanted) -> (__m256i, __m256i) {
    let (all, zero) = (|word: i64| _mm256_set1_epi64x(word), _mm256_setzero_si256());
    let is_first = _mm256_and_si256(
        _mm256_cmpeq_epi64(_mm256_and_si256(bits, all(FIRST)), all(SYN)),
        wanted.takes_first_syn,
    );
    let changes_nothing = _mm256_cmpeq_epi64(_mm256_and_si256(bits, all(CHANGES)), zero);
    let is_nothing = _mm256_cmpeq_epi64(_mm256_and_si256(bits, all(OTHERS)), zero);
    let is_flow = _mm256_or_si256(is_first, _mm256_andnot_si256(is_nothing, changes_nothing));
    (_mm256_xor_si256(is_flow, all(-1)), is_first)
}

/// What is in the words of a row of which nothing is known. The first two are for others to fill.
const UNKNOWN: [u64; 4] = words_of(Pass::UNKNOWN);

const fn words_of(pass: Pass) -> [u64; 4] {
    // SAFETY: a pass has no padding and 32 bytes; what its fields hold is four words as well.
    unsafe { std::mem::transmute::<Pass, [u64; 4]>(pass) }
}

/// Control bits of TCP (RFC 9293 §3.1): FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32.
const SYN: i64 = 2;
/// Those by which a first SYN is known.
const FIRST: i64 = 1 | 2 | 4 | 16;
/// Those that open or close.
const CHANGES: i64 = 1 | 2 | 4;
/// Of the others, one at least is set.
const OTHERS: i64 = 8 | 16 | 32;

/// Two rows from their first and their second halves.
#[target_feature(enable = "avx2")]
#[inline]
fn put(first: __m256i, second: __m256i, low: &mut Pass, high: &mut Pass) {
    let put = |pass: &mut Pass, first, second| {
        let row = std::ptr::from_mut(pass).cast::<__m128i>();
        // Whatever a packet holds lands in numbers; flag and reason come from `UNKNOWN`.
        // SAFETY: a pass has 32 bytes, in the layout asserted beside it, and each of its fields gets a valid value.
        unsafe {
            _mm_storeu_si128(row, first);
            _mm_storeu_si128(row.add(1), second);
        }
    };
    put(low, _mm256_castsi256_si128(first), _mm256_castsi256_si128(second));
    put(high, _mm256_extracti128_si256::<1>(first), _mm256_extracti128_si256::<1>(second));
}

/// Not zero where a frame is not to this interface, from someone else, with its tags: of bytes 0 to 15, and 8 to 23 where
/// there are tags.
#[target_feature(enable = "avx2")]
#[inline]
fn links_differ<const TAG: usize>(link: &[__m256i; 2], behind: &[__m256i; 2], wanted: &Wanted) -> __m256i {
    let mut bad = differs(link, wanted.link, wanted.masks);
    if TAG > 0 {
        bad = _mm256_or_si256(bad, differs(behind, wanted.behind, wanted.behind_masks));
    }
    let ours = _mm256_or_si256(
        _mm256_cmpeq_epi32(link[0], wanted.mac_tail),
        _mm256_cmpeq_epi32(link[1], wanted.mac_tail),
    );
    // The source's last four bytes are the third of four words.
    let tail = _mm256_set_epi64x(0xffff_ffff, 0, 0xffff_ffff, 0);
    _mm256_or_si256(bad, _mm256_and_si256(ours, tail))
}

/// Bits set where a pair of vectors differs from what is wanted.
#[target_feature(enable = "avx2")]
#[inline]
fn differs(found: &[__m256i; 2], wanted: __m256i, masks: __m256i) -> __m256i {
    let either = _mm256_or_si256(_mm256_xor_si256(found[0], wanted), _mm256_xor_si256(found[1], wanted));
    _mm256_and_si256(either, masks)
}

/// Takes from each lane the two bytes from `at`, the other way round, and zeroes.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(at: i8) -> __m256i {
    let (low, high) = (at, at + 8);
    twice(_mm_setr_epi8(low + 1, low, -1, -1, -1, -1, -1, -1, high + 1, high, -1, -1, -1, -1, -1, -1))
}

/// The same for both halves of a vector.
#[target_feature(enable = "avx2")]
#[inline]
fn twice(half: __m128i) -> __m256i {
    _mm256_broadcastsi128_si256(half)
}

/// Not zero where the IPv4 header's checksum is wrong. The words are those from byte 8, 16, 24 and 32 of a frame, the
/// header's bytes 14 to 33 of it.
///
/// RFC 1071 §2: the sum does not depend on the order of bytes. Ten halves add up to less than 20 bits; right ones are a
/// multiple k of 0xffff with k from 1 to 10, of which the lower half is 0x10000 - k and the upper k - 1.
#[target_feature(enable = "avx2")]
#[inline]
fn header_sum(word1: __m256i, word2: __m256i, word3: __m256i, word4: __m256i) -> __m256i {
    let even = _mm256_set1_epi64x(0x0000_ffff_0000_ffff);
    let half = _mm256_set1_epi64x(0xffff);
    let halves = |word| _mm256_add_epi32(_mm256_and_si256(word, even), _mm256_srli_epi32::<16>(word));
    let ends = _mm256_add_epi32(_mm256_srli_epi64::<48>(word1), _mm256_and_si256(word4, half));
    let sum = _mm256_add_epi32(_mm256_add_epi32(halves(word2), halves(word3)), ends);
    let sum = _mm256_and_si256(
        _mm256_add_epi32(sum, _mm256_srli_epi64::<32>(sum)),
        _mm256_set1_epi64x(0xffff_ffff),
    );
    let folded = _mm256_add_epi64(_mm256_and_si256(sum, half), _mm256_srli_epi64::<16>(sum));
    _mm256_xor_si256(folded, half)
}

/// Not zero where the destination is none that packets in transit may have: net 0, 127, or 224 and above. Its first byte
/// is the seventh of the word.
#[target_feature(enable = "avx2")]
#[inline]
fn not_in_transit(word3: __m256i) -> __m256i {
    let all = |word: i64| _mm256_set1_epi64x(word);
    let net = _mm256_and_si256(_mm256_srli_epi64::<48>(word3), all(0xff));
    let nowhere =
        _mm256_or_si256(_mm256_cmpeq_epi64(net, _mm256_setzero_si256()), _mm256_cmpeq_epi64(net, all(127)));
    _mm256_or_si256(nowhere, _mm256_cmpgt_epi64(net, all(223)))
}

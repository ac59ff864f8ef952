//! TCP's numbers, which wrap around (RFC 9293 §3.4).

/// Is `a` before `b`?
pub(super) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Is it behind `from` and not behind `to`?
pub(super) const fn within(number: u32, from: u32, to: u32) -> bool {
    before(from, number) && !before(to, number)
}

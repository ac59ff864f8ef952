//! Bounded index, slabs, port bitmaps, expiry sweep, longest-prefix match, huge-page arena.

//! Packet memory: an owned, bounded frame with headroom, whoever allocated it.

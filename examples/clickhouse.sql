-- The table that [[logging.exporter]] with protocol = "clickhouse" inserts into. Make it with
--   clickhouse-client --multiquery < clickhouse.sql
-- Works with every ClickHouse since 18.16. A connection that breaks during an insert may leave rows twice; count and ask
-- with DISTINCT where that matters.

CREATE DATABASE IF NOT EXISTS carrack;

CREATE TABLE IF NOT EXISTS carrack.events
(
    time_ms     UInt64,                -- milliseconds since 1970, UTC
    time        DateTime MATERIALIZED toDateTime(intDiv(time_ms, 1000)),
    router      String,                -- system.name
    worker      UInt8,
    kind        String,                -- block-allocated, block-released, mapping-created, session-deleted, ...
    instance    String,
    inside      FixedString(16),       -- the subscriber; IPv4 as ::ffff:a.b.c.d
    inside_ip   String ALIAS IPv6NumToString(inside),
    inside_port UInt16,
    outside     UInt32,
    outside_ip  String ALIAS IPv4NumToString(outside),
    first       UInt16,                -- outside ports
    last        UInt16,
    protocol    UInt8,                 -- 0: all
    remote      FixedString(16),       -- with log = "destinations" only
    remote_ip   String ALIAS IPv6NumToString(remote),
    remote4     UInt32,                -- of a NAT64 session the IPv4 address behind `remote`
    remote_port UInt16,
    pool        UInt16,
    detail      UInt8,
    value       UInt32,
    count       UInt32,
    reason      String                 -- why something was refused
)
ENGINE = MergeTree()
PARTITION BY toYYYYMMDD(toDateTime(intDiv(time_ms, 1000)))
ORDER BY (outside, first, time_ms);

-- Who had 203.0.113.7 port 4711 at 14:03:22.5 on 3 March 2026? The last row says it, unless it is a release:
--   SELECT time_ms, kind, inside_ip, first, last FROM carrack.events
--   WHERE outside = IPv4StringToNum('203.0.113.7') AND first <= 4711 AND last >= 4711
--     AND time_ms <= 1772546602500 AND kind IN ('block-allocated', 'block-released')
--   ORDER BY time_ms DESC LIMIT 1
-- `carrack trace-back` asks its own store, and knows what was lost and when the clock was set.

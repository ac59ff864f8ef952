//! Walks over the tables for management, a few lines between bursts, so that millions of rows stop nothing.

use core::mem;

use carrack_base::{InstanceId, Now, Proto};
use carrack_nat::row::{SessionRow, TcpState};
use carrack_nat::{Cursor, Nat};

use crate::fragments::Fragments;
use crate::mailbox::{Dump, Row, StateRow, Table};
use crate::neighbours::Neighbours;
use crate::translators::Translators;

/// Walks at once; more wait their turn.
const DUMPS_MAX: usize = 16;
/// Lines one walk looks at between two bursts, when nothing came.
const LINES_A_TURN: usize = 128;
/// So many packets since its last turn leave a walk a quarter of its lines.
const PACKETS_TO_QUARTER: u64 = 8;
/// So many packets are a line's due at least, however many came.
const PACKETS_OF_A_LINE: u64 = 20;
/// Lines that take as long as one whose session ends.
const LINES_OF_AN_END: usize = 8;
/// Lines that are counted while one is told of.
const COUNTED_LINES: usize = 4;

/// Lines one walk looks at when so many packets came since its last turn: more of them leave it less, so that it takes what
/// time they leave, and a tenth of a worker that has none to leave. It falls by the square, for a walk itself makes bursts
/// longer: by the first power a worker with half its time free loses packets, and one with a third of it free, many
/// (`bench stalls`, `bench churn`).
fn lines_beside(packets: u64) -> usize {
    let part = |lines: u64| lines * PACKETS_TO_QUARTER / packets.saturating_add(PACKETS_TO_QUARTER);
    let left = part(part(LINES_A_TURN as u64));
    left.max(packets / PACKETS_OF_A_LINE).clamp(1, LINES_A_TURN as u64) as usize
}

/// The same for this walk, by what a line of it takes.
fn lines_of(dump: &Dump, lines: usize) -> usize {
    match dump.table {
        Table::Sessions if dump.delete => lines.div_ceil(LINES_OF_AN_END),
        Table::States => (lines * COUNTED_LINES).min(LINES_A_TURN),
        _ => lines,
    }
}

struct Walk {
    dump: Dump,
    cursor: Cursor,
    sent: u64,
}

/// What a worker's walks go over.
pub(crate) struct Walked<'a> {
    pub(crate) nat: &'a mut Nat,
    pub(crate) translators: &'a Translators,
    pub(crate) fragments: &'a Fragments,
    pub(crate) neighbours: &'a Neighbours,
}

/// Walks in progress.
pub(crate) struct Dumps {
    walks: Vec<Walk>,
    /// Packets that had come by the last turn.
    packets: u64,
}

impl Dumps {
    pub(crate) fn new() -> Self {
        Self { walks: Vec::with_capacity(DUMPS_MAX), packets: 0 }
    }

    /// Is there room for another?
    pub(crate) fn has_room(&self) -> bool {
        self.walks.len() < DUMPS_MAX
    }

    pub(crate) fn start(&mut self, dump: Dump) {
        self.walks.push(Walk { dump, cursor: Cursor::default(), sent: 0 });
    }

    /// One turn of each walk; those at their end are dropped, which the reader sees as the end. `packets` have come since the
    /// worker began.
    pub(crate) fn turn(&mut self, tables: &mut Walked<'_>, packets: u64, now: Now) {
        let fresh = packets.saturating_sub(mem::replace(&mut self.packets, packets));
        if self.walks.is_empty() {
            return;
        }
        let lines = lines_beside(fresh);
        let mut at = 0;
        while let Some(walk) = self.walks.get_mut(at) {
            if walk.dump.rows.is_abandoned() || walk.turn(tables, lines, now) {
                self.walks.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
}

impl Walk {
    /// True at the end.
    fn turn(&mut self, tables: &mut Walked<'_>, lines: usize, now: Now) -> bool {
        let Self { dump, cursor, sent } = self;
        let Walked { nat, translators, fragments, neighbours } = tables;
        let room = dump.rows.slots();
        if room == 0 {
            return false;
        }
        let lines = lines_of(dump, lines).min(room);
        let max = if dump.rows_max == 0 { u64::MAX } else { dump.rows_max };
        let mut put = |rows: &mut rtrb::Producer<Row>, row: Row| {
            // Invariant: no more rows than lines, and there is room for those.
            let wanted = *sent < max && rows.push(row).is_ok();
            *sent += u64::from(wanted);
            wanted
        };
        let rows = &mut dump.rows;
        let end = match dump.table {
            Table::Sessions => nat.walk_sessions(cursor, lines, &dump.filter, dump.delete, now, |row| {
                put(rows, Row::Session(row))
            }),
            Table::Mappings => {
                nat.walk_mappings(cursor, lines, &dump.filter, |row| put(rows, Row::Mapping(row)))
            }
            Table::Subscribers => {
                nat.walk_subscribers(cursor, lines, &dump.filter, |row| put(rows, Row::Subscriber(row)))
            }
            Table::Pools => nat.walk_pools(cursor, lines, |row| put(rows, Row::Pool(row))),
            Table::Memory => {
                let mut all = nat.memory();
                all.extend(fragments.memory());
                all.push(neighbours.memory());
                for row in all.iter().skip(cursor.0 as usize).take(lines) {
                    put(rows, Row::Memory(*row));
                    cursor.0 += 1;
                }
                cursor.0 as usize >= all.len()
            }
            Table::States => {
                let mut tally = Tally::default();
                let end = nat.walk_sessions(cursor, lines, &dump.filter, false, now, |row| tally.count(&row));
                for row in tally.rows.into_iter().take(tally.count) {
                    put(rows, Row::State(row));
                }
                end
            }
            Table::Translators => translators.walk(&mut cursor.0, lines, |row| {
                put(rows, Row::Translator(row));
            }),
        };
        end || *sent >= max
    }
}

/// Sessions of one turn, by kind: never more kinds than lines.
struct Tally {
    rows: [StateRow; LINES_A_TURN],
    count: usize,
}

impl Default for Tally {
    fn default() -> Self {
        let none =
            StateRow { instance: InstanceId(0), proto: Proto::Other, tcp: TcpState::None, sessions: 0 };
        Self { rows: [none; LINES_A_TURN], count: 0 }
    }
}

impl Tally {
    fn count(&mut self, row: &SessionRow) -> bool {
        let SessionRow { instance, proto, tcp, .. } = *row;
        let is_same = |known: &&mut StateRow| {
            known.sessions == 0 || (known.instance, known.proto, known.tcp) == (instance, proto, tcp)
        };
        let Some(known) = self.rows.iter_mut().find(is_same) else { return false };
        self.count += usize::from(known.sessions == 0);
        *known = StateRow { instance, proto, tcp, sessions: known.sessions + 1 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_packets_came_the_fewer_lines_a_walk_has_but_a_share_always() {
        assert_eq!([0, 8, 16, 32, 64].map(lines_beside), [LINES_A_TURN, 32, 14, 5, 3]);
        // Several ports in a turn.
        assert_eq!([128, 512, 10_000, u64::MAX].map(lines_beside), [6, 25, LINES_A_TURN, LINES_A_TURN]);
        for packets in 1..2_000_u64 {
            let lines = lines_beside(packets) as u64;
            let share = (packets / PACKETS_OF_A_LINE).clamp(1, LINES_A_TURN as u64);
            assert!((share..=LINES_A_TURN as u64).contains(&lines), "{packets} packets, {lines} lines");
        }
    }
}

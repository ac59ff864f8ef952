//! On which NUMA node memory is to be, and on which it really is: the kernel is asked for both, for a first touch alone takes
//! other nodes' memory without a word when the nearest has none left.

use core::cell::Cell;
use core::ptr::NonNull;

/// What `get_mempolicy` is asked for: the node, of an address.
const NODE_OF_ADDRESS: libc::c_ulong = 1 | 2;
/// Words of a set of nodes, and nodes in it.
const WORDS: usize = 16;
const NODES_MAX: usize = WORDS * libc::c_ulong::BITS as usize;
/// Places of a mapping that are looked at.
const LOOKS: usize = 64;

thread_local! {
    /// Where arenas of this thread are to be, when that is not where it runs.
    static NEAR: Cell<Option<u32>> = const { Cell::new(None) };
}

/// While it lives, arenas that this thread makes are near another processor than its own: for tables made for somebody else.
#[derive(Debug)]
pub struct Near {
    before: Option<u32>,
}

impl Near {
    /// On this node; `None` for that of the processor the thread runs on.
    #[must_use]
    pub fn node(node: Option<u32>) -> Self {
        Self { before: NEAR.replace(node) }
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        NEAR.set(self.before);
    }
}

/// Where an arena made now should be; `None` where the kernel does not tell.
pub(crate) fn wanted() -> Option<u32> {
    NEAR.get().or_else(here)
}

/// The node of the processor this thread runs on.
fn here() -> Option<u32> {
    let (mut cpu, mut node): (libc::c_uint, libc::c_uint) = (0, 0);
    // SAFETY: the kernel writes two integers, which are ours; the third argument is unused.
    let done = unsafe {
        libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, core::ptr::null_mut::<libc::c_void>())
    };
    (done == 0).then_some(node)
}

/// Asks for pages of this range from a node, or the next best when it has none. Before they are touched. A kernel without
/// nodes, or a sandbox that does not allow it, leaves them where a first touch puts them.
pub(crate) fn prefer(base: NonNull<u8>, bytes: usize, node: u32) {
    let mut nodes: [libc::c_ulong; WORDS] = [0; WORDS];
    let (word, bit) = (node / libc::c_ulong::BITS, node % libc::c_ulong::BITS);
    let Some(word) = nodes.get_mut(word as usize) else { return };
    *word |= 1 << bit;
    // The kernel counts one less than the length told. What it answers is not needed: where memory is, is looked at afterwards.
    // SAFETY: advice about the caller's own mapping, nothing of it is read or written; the set has the length told.
    unsafe {
        libc::syscall(
            libc::SYS_mbind,
            base.as_ptr(),
            bytes,
            libc::MPOL_PREFERRED as libc::c_ulong,
            nodes.as_ptr(),
            NODES_MAX + 1,
            0 as libc::c_ulong,
        )
    };
}

/// The node on which touched memory of this range is: `wanted` when all places looked at are there, else the first other
/// one. `None` where the kernel does not tell.
pub(crate) fn found(base: NonNull<u8>, bytes: usize, wanted: Option<u32>) -> Option<u32> {
    let mut all = (0..LOOKS).map_while(|look| {
        // SAFETY: look < LOOKS, so this is inside the range, or its start when that is shorter than the looks.
        node_of(unsafe { base.add(bytes / LOOKS * look) })
    });
    let first = all.next()?;
    let is_other = |node: &u32| Some(*node) != wanted;
    Some(if is_other(&first) { first } else { all.find(is_other).unwrap_or(first) })
}

fn node_of(address: NonNull<u8>) -> Option<u32> {
    let mut node: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, which is ours, and only looks up where the page of the address is.
    let done = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            core::ptr::null_mut::<libc::c_ulong>(),
            0 as libc::c_ulong,
            address.as_ptr(),
            NODE_OF_ADDRESS,
        )
    };
    (done == 0).then(|| u32::try_from(node).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, PagePreference};

    /// Does the kernel know nodes, and let this process ask?
    fn told() -> bool {
        let byte = 0u8;
        here().is_some() && node_of(NonNull::from(&byte)).is_some()
    }

    fn nodes() -> usize {
        let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
        let is_node =
            |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count()
    }

    #[test]
    fn an_arena_is_on_the_node_of_its_processor_and_says_so() {
        if !told() {
            eprintln!("not tested: this kernel tells no nodes, or a sandbox forbids to ask");
            return;
        }
        let arena = Arena::new("near", 4 << 20, PagePreference::Small).unwrap();
        assert!(arena.node().is_some());
        // One node: whatever processor this test moved to, it is its node.
        if nodes() == 1 {
            assert_eq!(arena.node(), here());
        }
    }

    #[test]
    fn a_node_that_is_not_there_leaves_memory_where_it_can_be_had_and_that_is_told() {
        if !told() {
            eprintln!("not tested: this kernel tells no nodes, or a sandbox forbids to ask");
            return;
        }
        let near = Near::node(Some(1_000));
        assert_eq!(wanted(), Some(1_000));
        let arena = Arena::new("far", 64 << 10, PagePreference::Small).unwrap();
        assert!(arena.node().is_some_and(|node| node != 1_000));
        drop(near);
        assert!(wanted().is_some_and(|node| node < 1_000));
        let _near = Near::node(Some(u32::MAX));
        assert!(Arena::new("nowhere", 64, PagePreference::Small).is_ok());
    }
}

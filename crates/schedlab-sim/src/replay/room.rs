//! How much a channel of the replay holds, and how much must be free before writers that wait go on.
//!
//! For sockets of one machine as the kernel has it, by what each message takes of the sender's buffer; else as
//! the recording shows it where writers waited. Not here: who writes and reads what ([`super::channels`]).

use schedlab_model::recording::{ChannelInfo, ChannelKind};

/// Bytes a pipe holds unless it was resized.
const PIPE_CAPACITY: u64 = 65_536;
/// A pipe's writer is woken when a page is free.
const PIPE_ROOM: u64 = 4_096;
const PAGE: u64 = 4_096;
/// Send buffer of a socket unless it was resized (`net.core.wmem_default`).
const SOCKET_BUFFER: u64 = 212_992;
/// What a message takes besides its bytes: `struct skb_shared_info` behind them and `struct sk_buff`.
const SHARED_INFO: u64 = 320;
const SK_BUFF: u64 = 256;
/// The smallest piece of memory for bytes and `struct skb_shared_info`, and the largest.
const HEAD_MIN: u64 = 512;
const HEAD_MAX: u64 = 4_096;
/// Sockets over a network are named by their ports, with this bit set.
const NETWORK: u64 = 1 << 63;

/// Levels of a channel that the recording shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    /// The highest.
    pub(super) max: u64,
    /// At which writers found it full, and at which they were woken.
    pub(super) full: Vec<u64>,
    pub(super) resumed: Vec<u64>,
}

/// What fits in, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) capacity: u64,
    /// So much must be free before a writer that waits is woken.
    pub(super) to_resume: u64,
}

impl Room {
    /// Of a channel to which messages of these sizes were written.
    pub(super) fn of(info: &ChannelInfo, levels: &Levels, sizes: &[u64]) -> Room {
        let message = sizes.iter().copied().max().unwrap_or(0);
        let usual = Room::usual(info, sizes);
        let seen = Room::seen(levels, message);
        let local = info.kind == ChannelKind::Socket && info.identity & NETWORK == 0;
        match seen {
            // Levels are uncertain by what is under way; the kernel's rule is not.
            Some(seen) if local && seen.capacity.abs_diff(usual.capacity) * 4 < usual.capacity => usual,
            Some(seen) => seen,
            None => {
                let capacity = usual.capacity.max(if local { 0 } else { levels.max }).max(message);
                Room { capacity, to_resume: usual.to_resume.clamp(1, capacity) }
            }
        }
    }

    /// As the recording shows it.
    fn seen(levels: &Levels, message: u64) -> Option<Room> {
        let capacity = (*levels.full.iter().max()?).max(message).max(1);
        let mut room: Vec<u64> = levels.resumed.iter().map(|&level| capacity.saturating_sub(level)).collect();
        room.sort_unstable();
        let middle = *room.get(room.len() / 2)?;
        Some(Room { capacity, to_resume: middle.max(message).min(capacity) })
    }

    /// As the kernel has it for messages of these sizes.
    fn usual(info: &ChannelInfo, sizes: &[u64]) -> Room {
        if info.kind == ChannelKind::Pipe {
            let capacity = if info.capacity > 0 { info.capacity } else { PIPE_CAPACITY };
            return Room { capacity, to_resume: PIPE_ROOM };
        }
        let count = sizes.len().max(1) as u64;
        let bytes = (sizes.iter().sum::<u64>() / count).max(1);
        let memory = (sizes.iter().map(|&size| truesize(size)).sum::<u64>() / count).max(1);
        // A writer goes on as long as anything is free (`sock_alloc_send_pskb`), and is woken when three quarters
        // are (`unix_writable`).
        let full = SOCKET_BUFFER.div_ceil(memory);
        let resume = SOCKET_BUFFER / 4 / memory;
        Room { capacity: full * bytes, to_resume: (full - resume) * bytes }
    }
}

/// Memory that a message takes of its sender's buffer (`skb->truesize` of `unix_stream_sendmsg`): a piece of kmalloc
/// for bytes and `struct skb_shared_info`; what does not fit in has pages.
fn truesize(bytes: u64) -> u64 {
    let head = bytes.next_multiple_of(64) + SHARED_INFO;
    if head > HEAD_MAX {
        return HEAD_MIN + SK_BUFF + bytes.next_multiple_of(PAGE);
    }
    head.next_power_of_two().max(HEAD_MIN) + SK_BUFF
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many messages fit into an AF_UNIX stream socket, and how many must be read until `poll` tells that it is
    /// writable: counted on Linux 6.18.
    #[test]
    fn sockets_hold_what_linux_lets_them_hold() {
        let info = ChannelInfo { kind: ChannelKind::Socket, identity: 1, peer: None, capacity: 0 };
        let counted = [
            (1, 278, 209),
            (100, 278, 209),
            (192, 278, 209),
            (193, 167, 126),
            (704, 167, 126),
            (705, 93, 70),
            (2_000, 49, 37),
            (3_776, 49, 37),
            (4_000, 44, 34),
            (8_000, 24, 19),
        ];
        for (size, full, reads) in counted {
            let room = Room::of(&info, &Levels::default(), &[size; 3]);
            assert_eq!((room.capacity, room.to_resume), (full * size, reads * size), "messages of {size}");
        }
    }

    #[test]
    fn what_was_seen_counts_where_it_contradicts_the_default() {
        let info = ChannelInfo { kind: ChannelKind::Socket, identity: 1, peer: None, capacity: 0 };
        let levels = Levels { max: 28_300, full: vec![27_700, 28_300], resumed: vec![6_600, 7_100] };
        assert_eq!(Room::of(&info, &levels, &[100]), Room { capacity: 27_800, to_resume: 20_900 });
        let levels = Levels { max: 5_000, full: vec![4_800, 5_000], resumed: vec![1_000, 1_100] };
        assert_eq!(Room::of(&info, &levels, &[100]), Room { capacity: 5_000, to_resume: 4_000 });
    }
}

//! Maps of an instance: what programs and the host can do with each kind.
//!
//! Values live in the region, so programs hold pointers into them; the index is here. Not here: helper
//! numbers (`helpers`), where arrays lie (`exec::layout`).

mod arena;
mod bloom;
mod host;
mod record;
mod ring;
mod table;
mod trie;

use crate::exec::layout::{Layout, MapLayout};
use crate::exec::{BpfError, FaultKind};
use crate::image::{MapImage, ObjectImage};
use crate::memory::Memory;
pub(crate) use arena::Arena;
pub(crate) use arena::{PAGE_BYTES, bytes as arena_bytes};
use bloom::Bloom;
pub use host::MapError;
pub(crate) use record::{Freed, Record};
use ring::Ring;
use std::sync::Arc;
use table::Table;
use trie::Trie;

/// Numbers of `enum bpf_map_type`.
#[expect(missing_docs, reason = "named as in the kernel")]
pub mod kind {
    pub const HASH: u32 = 1;
    pub const ARRAY: u32 = 2;
    pub const PROG_ARRAY: u32 = 3;
    pub const PERF_EVENT_ARRAY: u32 = 4;
    pub const PERCPU_HASH: u32 = 5;
    pub const PERCPU_ARRAY: u32 = 6;
    pub const STACK_TRACE: u32 = 7;
    pub const CGROUP_ARRAY: u32 = 8;
    pub const LRU_HASH: u32 = 9;
    pub const LRU_PERCPU_HASH: u32 = 10;
    pub const LPM_TRIE: u32 = 11;
    pub const ARRAY_OF_MAPS: u32 = 12;
    pub const HASH_OF_MAPS: u32 = 13;
    pub const QUEUE: u32 = 22;
    pub const STACK: u32 = 23;
    pub const SK_STORAGE: u32 = 24;
    pub const RINGBUF: u32 = 27;
    pub const INODE_STORAGE: u32 = 28;
    pub const TASK_STORAGE: u32 = 29;
    pub const BLOOM_FILTER: u32 = 30;
    pub const USER_RINGBUF: u32 = 31;
    pub const CGRP_STORAGE: u32 = 32;
    pub const ARENA: u32 = 33;

    /// The name of a type, and whether maps of it exist here.
    #[must_use]
    pub fn describe(map_type: u32) -> (&'static str, bool) {
        let name = NAMES.get(map_type as usize).copied().unwrap_or("unknown");
        (name, super::is_supported(map_type))
    }

    /// Index is the number. Source: include/uapi/linux/bpf.h of 7.2.
    const NAMES: &[&str] = &[
        "unspec",
        "hash",
        "array",
        "prog_array",
        "perf_event_array",
        "percpu_hash",
        "percpu_array",
        "stack_trace",
        "cgroup_array",
        "lru_hash",
        "lru_percpu_hash",
        "lpm_trie",
        "array_of_maps",
        "hash_of_maps",
        "devmap",
        "sockmap",
        "cpumap",
        "xskmap",
        "sockhash",
        "cgroup_storage",
        "reuseport_sockarray",
        "percpu_cgroup_storage",
        "queue",
        "stack",
        "sk_storage",
        "devmap_hash",
        "struct_ops",
        "ringbuf",
        "inode_storage",
        "task_storage",
        "bloom_filter",
        "user_ringbuf",
        "cgrp_storage",
        "arena",
        "insn_array",
    ];
}

pub(crate) const ENOENT: i64 = 2;
pub(crate) const E2BIG: i64 = 7;
pub(crate) const ENOMEM: i64 = 12;
pub(crate) const EFAULT: i64 = 14;
pub(crate) const EBUSY: i64 = 16;
pub(crate) const EEXIST: i64 = 17;
pub(crate) const EINVAL: i64 = 22;
pub(crate) const EOPNOTSUPP: i64 = 95;

/// `BPF_NOEXIST`, `BPF_EXIST`, and the mask that leaves `BPF_F_LOCK` out: one thread runs an instance.
const NOEXIST: u64 = 1;
const EXIST: u64 = 2;
const UPDATE_FLAGS: u64 = 3;
/// Flag of maps whose elements are made when they are needed.
const BPF_F_NO_PREALLOC: u32 = 1;
/// `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const STORAGE_CREATE: u64 = 1;

/// All maps of an instance.
pub(crate) struct Maps {
    pub(crate) maps: Vec<Map>,
    nr_cpus: u32,
    /// What values gave up in the operation in progress; the helper that asked for it cleans up.
    pub(crate) freed: Vec<Freed>,
}

/// One map.
pub(crate) struct Map {
    pub(crate) info: MapImage,
    pub(crate) place: MapLayout,
    store: Store,
}

enum Store {
    /// Array, per-CPU array, array of maps: values at `place.values`.
    Array {
        copies: u32,
    },
    /// Hash, per-CPU hash, LRU forms, hash of maps.
    Hash {
        table: Table,
        copies: u32,
    },
    /// Queue or stack: addresses of values, oldest first.
    Queue {
        values: std::collections::VecDeque<u64>,
        lifo: bool,
    },
    Ring(Ring),
    /// Task or cgroup storage: the key is the owner's address.
    Storage(Table),
    Arena(Arena),
    /// Longest-prefix-match trie.
    Trie(Trie),
    Bloom(Bloom),
    /// Programs to tail-call, by index into the image.
    Programs(Vec<Option<u32>>),
    /// Messages for programs: filled by the host only.
    UserRing(std::collections::VecDeque<Vec<u8>>),
    /// Exists, holds nothing and takes nothing: perf events, stack traces, sockets and inodes, of which a
    /// simulated kernel has none.
    Inert,
}

/// Types of maps that exist here.
const SUPPORTED: &[u32] = &[
    kind::HASH,
    kind::ARRAY,
    kind::PROG_ARRAY,
    kind::PERF_EVENT_ARRAY,
    kind::PERCPU_HASH,
    kind::PERCPU_ARRAY,
    kind::STACK_TRACE,
    kind::CGROUP_ARRAY,
    kind::LRU_HASH,
    kind::LRU_PERCPU_HASH,
    kind::LPM_TRIE,
    kind::ARRAY_OF_MAPS,
    kind::HASH_OF_MAPS,
    kind::QUEUE,
    kind::STACK,
    kind::SK_STORAGE,
    kind::RINGBUF,
    kind::INODE_STORAGE,
    kind::TASK_STORAGE,
    kind::BLOOM_FILTER,
    kind::USER_RINGBUF,
    kind::CGRP_STORAGE,
    kind::ARENA,
];

/// Types whose `max_entries` means nothing or may be 0.
const WITHOUT_ENTRIES: &[u32] = &[
    kind::PERF_EVENT_ARRAY,
    kind::STACK_TRACE,
    kind::CGROUP_ARRAY,
    kind::SK_STORAGE,
    kind::RINGBUF,
    kind::INODE_STORAGE,
    kind::TASK_STORAGE,
    kind::USER_RINGBUF,
    kind::CGRP_STORAGE,
];

/// Whether maps of a type exist here.
pub(crate) fn is_supported(map_type: u32) -> bool {
    SUPPORTED.contains(&map_type)
}

/// What is wrong with a map that cannot exist here, if anything.
pub(crate) fn check(image: &ObjectImage) -> Result<(), BpfError> {
    for map in &image.maps {
        if let Some(what) = problem(map) {
            return Err(BpfError::Map { map: map.name.clone(), what });
        }
    }
    Ok(())
}

/// Programs of an array: they lie outside the memory region and its limits.
const PROGRAMS_MAX: u32 = 1 << 20;

fn problem(map: &MapImage) -> Option<String> {
    let is_array = matches!(map.map_type, kind::ARRAY | kind::PERCPU_ARRAY | kind::ARRAY_OF_MAPS);
    if !is_supported(map.map_type) {
        return Some(format!("has type {}, which is not supported", map.map_type));
    }
    if map.max_entries == 0 && !WITHOUT_ENTRIES.contains(&map.map_type) {
        return Some(format!(
            "has max_entries 0, which its user half would set; a set-up file can: [maps.{}] max_entries = ...",
            map.name
        ));
    }
    Some(match map.map_type {
        kind::PROG_ARRAY if map.max_entries > PROGRAMS_MAX => {
            format!("is an array of {} programs; {PROGRAMS_MAX} are the most", map.max_entries)
        }
        _ if is_array && map.value_size == 0 => "is an array whose values have no bytes".to_owned(),
        _ if (is_array || map.map_type == kind::PROG_ARRAY) && map.key_size != 4 => {
            format!("is an array with keys of {} bytes; they have 4", map.key_size)
        }
        kind::RINGBUF if !map.max_entries.is_power_of_two() => {
            format!("is a ring buffer of {} bytes; it must be a power of two", map.max_entries)
        }
        kind::LPM_TRIE if !(5..=4 + trie::DATA_BYTES_MAX).contains(&map.key_size) => {
            let most = 4 + trie::DATA_BYTES_MAX;
            format!("is a trie with keys of {} bytes; they have 5 to {most}", map.key_size)
        }
        kind::LPM_TRIE if map.map_flags & BPF_F_NO_PREALLOC == 0 => {
            "is a trie without BPF_F_NO_PREALLOC, which Linux refuses".to_owned()
        }
        kind::BLOOM_FILTER if map.key_size != 0 || map.value_size == 0 => {
            "is a Bloom filter; it has values and no keys".to_owned()
        }
        _ => return None,
    })
}

impl Maps {
    /// Creates the maps and fills in their first content.
    pub(crate) fn new(image: &[MapImage], layout: &Layout, nr_cpus: u32, memory: &mut Memory) -> Maps {
        let mut maps = Vec::new();
        for (info, place) in image.iter().zip(&layout.maps) {
            let stride = place.stride;
            let table = |copies: u32, lru| Store::Hash {
                table: Table::new(info.key_size, stride * u64::from(copies), info.max_entries, lru),
                copies,
            };
            let store = match info.map_type {
                kind::PERCPU_ARRAY => Store::Array { copies: nr_cpus },
                kind::HASH | kind::HASH_OF_MAPS => table(1, false),
                kind::LRU_HASH => table(1, true),
                kind::PERCPU_HASH => table(nr_cpus, false),
                kind::LRU_PERCPU_HASH => table(nr_cpus, true),
                kind::QUEUE | kind::STACK => {
                    Store::Queue { values: Default::default(), lifo: info.map_type == kind::STACK }
                }
                kind::RINGBUF => Store::Ring(Ring::new(info.max_entries)),
                kind::TASK_STORAGE | kind::CGRP_STORAGE => {
                    Store::Storage(Table::new(8, stride, u32::MAX, false))
                }
                kind::ARENA => Store::Arena(Arena::new(place.values, info)),
                kind::LPM_TRIE => Store::Trie(Trie::new(info.key_size, stride, info.max_entries)),
                kind::BLOOM_FILTER => Store::Bloom(Bloom::new(info)),
                kind::PROG_ARRAY => Store::Programs(programs(info)),
                kind::USER_RINGBUF => Store::UserRing(Default::default()),
                kind::PERF_EVENT_ARRAY
                | kind::STACK_TRACE
                | kind::CGROUP_ARRAY
                | kind::SK_STORAGE
                | kind::INODE_STORAGE => Store::Inert,
                _ => Store::Array { copies: 1 },
            };
            maps.push(Map { info: info.clone(), place: place.clone(), store });
        }
        for map in &maps {
            if !map.info.initial.is_empty() {
                let area = memory.bytes_mut(map.place.values, map.info.initial.len() as u64);
                area.expect("arrays lie inside the region").copy_from_slice(&map.info.initial);
            }
        }
        let mut maps = Maps { maps, nr_cpus, freed: Vec::new() };
        maps.fill_inner(layout, memory);
        maps
    }

    fn fill_inner(&mut self, layout: &Layout, memory: &mut Memory) {
        for index in 0..self.maps.len() {
            if self.maps[index].info.map_type == kind::PROG_ARRAY {
                continue;
            }
            for (slot, inner) in self.maps[index].info.inner.clone() {
                let object = layout.maps[inner as usize].object;
                let key = slot.to_le_bytes();
                self.update_bytes(memory, index, &key, 0, |memory, at| memory.write_u64(at, object));
            }
        }
    }

    /// Address of a value for a program on `cpu`, 0 if there is none.
    pub(crate) fn lookup(&mut self, memory: &Memory, map: usize, key: u64, cpu: u32) -> u64 {
        let value = self.lookup_slot(memory, map, key, cpu);
        match self.maps[map].info.map_type {
            kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS if value != 0 => memory.read_u64(value),
            _ => value,
        }
    }

    fn lookup_slot(&mut self, memory: &Memory, map: usize, key: u64, cpu: u32) -> u64 {
        let map = &mut self.maps[map];
        match &mut map.store {
            Store::Array { copies } => {
                let index = memory.read_u32(key);
                if index >= map.info.max_entries || cpu >= self.nr_cpus {
                    return 0;
                }
                let copy = if *copies > 1 { u64::from(cpu) * u64::from(map.info.max_entries) } else { 0 };
                map.place.values + (copy + u64::from(index)) * map.place.stride
            }
            Store::Hash { table, copies } => {
                let Some(key) = memory.bytes(key, map.info.key_size.into()) else { return 0 };
                let copy = if *copies > 1 { u64::from(cpu) * map.place.stride } else { 0 };
                table.find(memory, key).map_or(0, |element| element + table.value_offset() + copy)
            }
            Store::Trie(trie) => {
                let Some(key) = memory.bytes(key, map.info.key_size.into()) else { return 0 };
                trie.find(key).map_or(0, |element| element + trie.value_offset())
            }
            _ => 0,
        }
    }

    /// `bpf_map_update_elem()` from a program on `cpu`.
    pub(crate) fn update(
        &mut self,
        memory: &mut Memory,
        map: usize,
        key: u64,
        value: u64,
        flags: u64,
        cpu: u32,
    ) -> i64 {
        let info = &self.maps[map].info;
        let size = u64::from(info.value_size);
        let Some(key) = memory.bytes(key, info.key_size.into()).map(<[u8]>::to_vec) else { return -EFAULT };
        let Some(value) = memory.bytes(value, size).map(<[u8]>::to_vec) else { return -EFAULT };
        let stride = self.maps[map].place.stride;
        let per_cpu = match self.maps[map].info.map_type {
            kind::PERCPU_HASH | kind::LRU_PERCPU_HASH => u64::from(cpu) * stride,
            kind::PERCPU_ARRAY => u64::from(cpu) * stride * u64::from(self.maps[map].info.max_entries),
            _ => 0,
        };
        let record = Arc::clone(&self.maps[map].place.record);
        let mut freed = std::mem::take(&mut self.freed);
        let error = self.update_bytes(memory, map, &key, flags, |memory, at| {
            record.replace(memory, at + per_cpu, &value, &mut freed);
        });
        freed.append(&mut self.freed);
        self.freed = freed;
        error
    }

    /// Finds or makes the value for a key and lets `write` fill its first copy.
    fn update_bytes(
        &mut self,
        memory: &mut Memory,
        map: usize,
        key: &[u8],
        flags: u64,
        write: impl FnOnce(&mut Memory, u64),
    ) -> i64 {
        let map = &mut self.maps[map];
        match &mut map.store {
            Store::Array { .. } => {
                let index = u32::from_le_bytes(key.try_into().expect("arrays have keys of four bytes"));
                match flags & UPDATE_FLAGS {
                    NOEXIST => return -EEXIST,
                    _ if index >= map.info.max_entries => return -E2BIG,
                    _ => write(memory, map.place.values + u64::from(index) * map.place.stride),
                }
            }
            Store::Hash { table, copies } => {
                let element = match (table.find(memory, key), flags & UPDATE_FLAGS) {
                    (Some(_), NOEXIST) => return -EEXIST,
                    (None, EXIST) => return -ENOENT,
                    (Some(element), _) => element,
                    (None, _) => {
                        if let Some(victim) = table.victim() {
                            let first = victim + table.value_offset();
                            free_copies(&map.place, *copies, memory, first, &mut self.freed);
                        }
                        match table.insert(memory, key) {
                            Ok(element) => element,
                            Err(error) => return error,
                        }
                    }
                };
                let place = memory.bytes_mut(element, key.len() as u64).expect("elements lie inside");
                place.copy_from_slice(key);
                write(memory, element + table.value_offset());
            }
            Store::Trie(trie) => match trie.insert(memory, key, flags) {
                Ok(element) => write(memory, element + trie.value_offset()),
                Err(error) => return error,
            },
            _ => return -EOPNOTSUPP,
        }
        0
    }

    /// `bpf_map_delete_elem()`.
    pub(crate) fn delete(&mut self, memory: &mut Memory, map: usize, key: &[u8]) -> i64 {
        let map = &mut self.maps[map];
        match &mut map.store {
            Store::Hash { table, copies } => {
                let Some(element) = table.find(memory, key) else { return -ENOENT };
                let first = element + table.value_offset();
                free_copies(&map.place, *copies, memory, first, &mut self.freed);
                table.remove(memory, key);
                0
            }
            Store::Trie(trie) => trie.remove(memory, key),
            Store::Array { .. } => -EINVAL,
            _ => -EOPNOTSUPP,
        }
    }

    /// The program in a slot of an array of programs.
    pub(crate) fn program(&self, map: usize, slot: u32) -> Option<u32> {
        match &self.maps[map].store {
            Store::Programs(programs) => programs.get(slot as usize).copied().flatten(),
            _ => None,
        }
    }

    /// Puts a program into a slot of an array of programs; `false` if there is no such slot.
    pub(crate) fn set_program(&mut self, map: usize, slot: u32, program: u32) -> bool {
        let Store::Programs(programs) = &mut self.maps[map].store else { return false };
        programs.get_mut(slot as usize).is_some_and(|place| {
            *place = Some(program);
            true
        })
    }

    /// `bpf_map_push_elem()` of a queue or stack. `BPF_EXIST` lets the oldest make room.
    pub(crate) fn push(&mut self, memory: &mut Memory, map: usize, value: u64, flags: u64) -> i64 {
        let map = &mut self.maps[map];
        let size = u64::from(map.info.value_size);
        if let Store::Bloom(bloom) = &mut map.store {
            let Some(content) = memory.bytes(value, size) else { return -EFAULT };
            return if flags == 0 {
                bloom.push(content);
                0
            } else {
                -EINVAL
            };
        }
        let Store::Queue { values, .. } = &mut map.store else { return -EOPNOTSUPP };
        if flags & NOEXIST != 0 || flags > EXIST {
            return -EINVAL;
        }
        if values.len() == map.info.max_entries as usize {
            if flags != EXIST {
                return -E2BIG;
            }
            let oldest = values.pop_front().expect("a full queue has an element");
            memory.free(oldest, size, 8);
        }
        let Some(content) = memory.bytes(value, size).map(<[u8]>::to_vec) else { return -EFAULT };
        let Some(address) = memory.alloc(size, 8) else { return -ENOMEM };
        memory.bytes_mut(address, size).expect("allocated inside").copy_from_slice(&content);
        values.push_back(address);
        0
    }

    /// `bpf_map_pop_elem()` and, with `keep`, `bpf_map_peek_elem()`.
    pub(crate) fn pop(&mut self, memory: &mut Memory, map: usize, value: u64, keep: bool) -> i64 {
        let map = &mut self.maps[map];
        let size = u64::from(map.info.value_size);
        if let (Store::Bloom(bloom), true) = (&map.store, keep) {
            let Some(content) = memory.bytes(value, size) else { return -EFAULT };
            return if bloom.holds(content) { 0 } else { -ENOENT };
        }
        let Store::Queue { values, lifo } = &mut map.store else { return -EOPNOTSUPP };
        let found = if *lifo { values.back() } else { values.front() }.copied();
        let content = found.and_then(|address| memory.bytes(address, size)).map(<[u8]>::to_vec);
        let Some(place) = memory.bytes_mut(value, size) else { return -EFAULT };
        let (Some(address), Some(content)) = (found, content) else {
            place.fill(0);
            return -ENOENT;
        };
        place.copy_from_slice(&content);
        if !keep {
            if *lifo {
                values.pop_back()
            } else {
                values.pop_front()
            };
            memory.free(address, size, 8);
        }
        0
    }

    /// The arena behind a map.
    pub(crate) fn arena(&mut self, map: usize) -> Option<&mut Arena> {
        match &mut self.maps[map].store {
            Store::Arena(arena) => Some(arena),
            _ => None,
        }
    }

    /// The messages that wait in a user ring buffer.
    pub(crate) fn user_ring(&mut self, map: usize) -> Option<&mut std::collections::VecDeque<Vec<u8>>> {
        match &mut self.maps[map].store {
            Store::UserRing(messages) => Some(messages),
            _ => None,
        }
    }

    /// The ring buffer behind a map.
    pub(crate) fn ring(&mut self, map: usize) -> Option<&mut Ring> {
        match &mut self.maps[map].store {
            Store::Ring(ring) => Some(ring),
            _ => None,
        }
    }

    /// The ring buffer in which a record was reserved, by the record's address.
    pub(crate) fn finish_record(&mut self, address: u64, discard: bool) -> bool {
        self.maps.iter_mut().any(|map| match &mut map.store {
            Store::Ring(ring) => ring.finish(address, discard),
            _ => false,
        })
    }

    /// `bpf_task_storage_get()` and its like.
    pub(crate) fn storage_get(
        &mut self,
        memory: &mut Memory,
        map: usize,
        owner: u64,
        initial: u64,
        flags: u64,
    ) -> Result<u64, FaultKind> {
        let map = &mut self.maps[map];
        let Store::Storage(table) = &mut map.store else { return Ok(0) };
        if owner == 0 {
            return Ok(0);
        }
        let key = owner.to_le_bytes();
        if let Some(element) = table.find(memory, &key) {
            return Ok(element + table.value_offset());
        }
        if flags & STORAGE_CREATE == 0 {
            return Ok(0);
        }
        let Ok(element) = table.insert(memory, &key) else {
            return Err(FaultKind::OutOfMemory(map.place.stride));
        };
        memory.write_u64(element, owner);
        let value = element + table.value_offset();
        if initial != 0
            && let Some(content) = memory.bytes(initial, map.info.value_size.into()).map(<[u8]>::to_vec)
        {
            memory.bytes_mut(value, content.len() as u64).expect("inside").copy_from_slice(&content);
        }
        Ok(value)
    }

    /// `bpf_task_storage_delete()` and its like.
    pub(crate) fn storage_delete(&mut self, memory: &mut Memory, map: usize, owner: u64) -> i64 {
        let map = &mut self.maps[map];
        let Store::Storage(table) = &mut map.store else { return -EINVAL };
        let key = owner.to_le_bytes();
        let Some(element) = table.find(memory, &key) else { return -ENOENT };
        map.place.record.free(memory, element + table.value_offset(), &mut self.freed);
        table.remove(memory, &key);
        0
    }

    /// Frees what every storage map keeps for an object that is no more.
    pub(crate) fn owner_died(&mut self, memory: &mut Memory, owner: u64) {
        for map in 0..self.maps.len() {
            self.storage_delete(memory, map, owner);
        }
    }

    /// Keys and values of a map as `bpf_for_each_map_elem()` visits them: (key address or index, value).
    pub(crate) fn visit(&self, map: usize, cpu: u32) -> Vec<(Visit, u64)> {
        let map = &self.maps[map];
        match &map.store {
            Store::Array { copies } => {
                let copy = if *copies > 1 { cpu * map.info.max_entries } else { 0 };
                let at = |index| map.place.values + u64::from(copy + index) * map.place.stride;
                (0..map.info.max_entries).map(|index| (Visit::Index(index), at(index))).collect()
            }
            Store::Hash { table, copies } => {
                let copy = if *copies > 1 { u64::from(cpu) * map.place.stride } else { 0 };
                let visit = |at| (Visit::Key(at), at + table.value_offset() + copy);
                table.elements().map(visit).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether a hash has an element at this address.
    pub(crate) fn is_element(&mut self, memory: &Memory, map: usize, element: u64) -> bool {
        let map = &mut self.maps[map];
        match &mut map.store {
            Store::Hash { table, .. } => memory
                .bytes(element, map.info.key_size.into())
                .is_some_and(|key| table.find(memory, key) == Some(element)),
            _ => false,
        }
    }

    /// The key of the value that holds `address`.
    pub(crate) fn key_of(&self, map: usize, address: u64) -> Option<(Visit, u64)> {
        let map = &self.maps[map];
        match &map.store {
            Store::Array { .. } => {
                let index = address.checked_sub(map.place.values)? / map.place.stride;
                let index = u32::try_from(index).ok().filter(|index| *index < map.info.max_entries)?;
                Some((Visit::Index(index), map.place.values + u64::from(index) * map.place.stride))
            }
            Store::Hash { table, .. } | Store::Storage(table) => {
                let holds = |at: &u64| {
                    let value = at + table.value_offset();
                    (value..value + map.place.stride).contains(&address)
                };
                table.elements().find(holds).map(|at| (Visit::Key(at), at + table.value_offset()))
            }
            _ => None,
        }
    }
}

/// The programs that an object puts into a map itself.
fn programs(info: &MapImage) -> Vec<Option<u32>> {
    let mut programs = vec![None; info.max_entries as usize];
    for (slot, program) in &info.inner {
        if let Some(place) = programs.get_mut(*slot as usize) {
            *place = Some(*program);
        }
    }
    programs
}

/// Gives up what all copies of a value hold.
fn free_copies(place: &MapLayout, copies: u32, memory: &mut Memory, first: u64, freed: &mut Vec<Freed>) {
    for copy in 0..u64::from(copies) {
        place.record.free(memory, first + copy * place.stride, freed);
    }
}

/// How a visitor names an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// Index of an array element.
    Index(u32),
    /// Address of a key.
    Key(u64),
}

//! What lies where in the region: fixed when an object is compiled, so every instance has the same addresses.
//!
//! From the bottom: zero page, stacks (one level for each nested call from the host), the host's own area,
//! map objects, values of arrays, heap, zero page.

use std::sync::Arc;

use super::fault::BpfError;
use crate::image::ObjectImage;
use crate::maps::{PAGE_BYTES, Record, arena_bytes, kind};
use crate::memory::ZERO_BYTES;

/// Stack of one function, as the kernel's `MAX_BPF_STACK`.
pub(crate) const STACK_BYTES_FRAME: u64 = 512;
/// Calls from the host into the object that can be active at once.
pub(crate) const LEVELS_MAX: u32 = 32;
/// Bytes above the first frame of a level where the arguments of a `struct_ops` callback lie.
const ARGUMENT_BYTES: u64 = 256;
/// Arguments that fit there.
pub(crate) const ARGUMENTS_MAX: usize = (ARGUMENT_BYTES / 8 - 1) as usize;
const LEVEL_BYTES: u64 = 8 * STACK_BYTES_FRAME + ARGUMENT_BYTES;
/// Address of the area that [`Options::host_bytes`](super::Options::host_bytes) reserves.
pub const HOST_AREA: u64 = (ZERO_BYTES + LEVELS_MAX as u64 * LEVEL_BYTES).next_multiple_of(4096);
/// Distance of map objects. Programs see their addresses, not their content.
pub(crate) const MAP_OBJECT_BYTES: u64 = 64;

/// Bytes of one hash that a region is made large enough for.
const HASH_BYTES_MAX: u64 = 64 << 20;
/// Tasks or cgroups whose storage a region is made large enough for at least.
const STORAGE_OWNERS_MIN: u64 = 4096;

/// Frame pointer of the first function of a level; its arguments begin at the same address.
pub(crate) const fn frame_pointer(level: u32) -> u64 {
    ZERO_BYTES + (level as u64 + 1) * LEVEL_BYTES - ARGUMENT_BYTES
}

/// Eight bytes of a level that neither arguments nor frames use.
pub(crate) fn scratch(level: u32) -> u64 {
    frame_pointer(level.min(LEVELS_MAX - 1)) + ARGUMENT_BYTES - 8
}

/// Place of one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapLayout {
    /// Address of the map object.
    pub object: u64,
    /// Address of the first value of an array, 0 for other maps.
    pub values: u64,
    /// Bytes from one value to the next.
    pub stride: u64,
    /// What is special in a value.
    pub record: Arc<Record>,
}

/// Places of everything.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub maps: Vec<MapLayout>,
    /// Address of the first map object.
    pub objects: u64,
    /// First byte of the heap.
    pub heap: u64,
    pub size_log2: u32,
}

impl Layout {
    pub(crate) fn new(
        image: &ObjectImage,
        size_log2: u32,
        host_bytes: u64,
        nr_cpus: u32,
    ) -> Result<Layout, BpfError> {
        let objects = (HOST_AREA + host_bytes).next_multiple_of(4096);
        let mut next = (objects + MAP_OBJECT_BYTES * image.maps.len() as u64).next_multiple_of(4096);
        let mut maps = Vec::new();
        for (index, map) in image.maps.iter().enumerate() {
            let stride = u64::from(map.value_size).next_multiple_of(8);
            let copies = match map.map_type {
                kind::ARRAY | kind::ARRAY_OF_MAPS => 1,
                kind::PERCPU_ARRAY => u64::from(nr_cpus),
                _ => 0,
            };
            let object = objects + MAP_OBJECT_BYTES * index as u64;
            let is_arena = map.map_type == kind::ARENA;
            if is_arena {
                next = next.next_multiple_of(PAGE_BYTES);
            }
            let values = if copies == 0 && !is_arena { 0 } else { next };
            // A word more, so that a wide load of the last short value stays in the map's own bytes.
            next += match is_arena {
                true => arena_bytes(map),
                false => (copies * stride * u64::from(map.max_entries)).next_multiple_of(64),
            };
            let record = Arc::new(Record::of(&image.btf, map.value_type));
            maps.push(MapLayout { object, values, stride, record });
        }
        let (heap, size) = (next.next_multiple_of(4096), 1 << size_log2);
        if heap + (64 << 10) > size - ZERO_BYTES {
            return Err(BpfError::Region { needed: heap + (64 << 10) + ZERO_BYTES, size });
        }
        Ok(Layout { maps, objects, heap, size_log2 })
    }

    /// Bytes of a region that holds the maps of an object besides the host's own things.
    ///
    /// Hashes are counted as if full up to a bound, storage as for so many owners, at least some thousand: what they
    /// really need shows only while they run.
    pub(crate) fn map_bytes(image: &ObjectImage, nr_cpus: u32, owners: u64) -> u64 {
        let bytes = |map: &crate::image::MapImage| {
            let stride = u64::from(map.value_size).next_multiple_of(8);
            let element = u64::from(map.key_size).next_multiple_of(8) + stride;
            let entries = u64::from(map.max_entries);
            match map.map_type {
                kind::ARRAY | kind::ARRAY_OF_MAPS => stride * entries,
                kind::PERCPU_ARRAY => stride * entries * u64::from(nr_cpus),
                kind::ARENA => arena_bytes(map),
                kind::RINGBUF => entries,
                kind::QUEUE | kind::STACK => (stride * entries).min(HASH_BYTES_MAX),
                kind::PERCPU_HASH | kind::LRU_PERCPU_HASH => {
                    (element * entries * u64::from(nr_cpus)).min(HASH_BYTES_MAX)
                }
                kind::HASH | kind::LRU_HASH | kind::HASH_OF_MAPS | kind::LPM_TRIE => {
                    (element * entries).min(HASH_BYTES_MAX)
                }
                kind::TASK_STORAGE | kind::CGRP_STORAGE => {
                    element.next_multiple_of(16).saturating_mul(owners.max(STORAGE_OWNERS_MIN))
                }
                _ => 0,
            }
        };
        image.maps.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of the region.
    pub(crate) fn size(&self) -> u64 {
        1 << self.size_log2
    }

    /// The map whose object lies at `address`.
    pub(crate) fn map_at(&self, address: u64) -> Option<usize> {
        let offset = address.checked_sub(self.objects)?;
        let index = (offset / MAP_OBJECT_BYTES) as usize;
        (offset % MAP_OBJECT_BYTES == 0 && index < self.maps.len()).then_some(index)
    }
}

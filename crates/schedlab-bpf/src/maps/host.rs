//! The user half's view of maps: what `bpf(2)` offers a loader, for knobs, set-up and results.

use super::{Map, Maps, Store, kind};
use crate::memory::Memory;

/// A refused map operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("map {map}: {what}")]
pub struct MapError {
    /// Name of the map.
    pub map: String,
    /// What is wrong, with the kernel's error name.
    pub what: String,
}

impl Map {
    fn error(&self, what: impl Into<String>) -> MapError {
        MapError { map: self.info.name.clone(), what: what.into() }
    }

    fn key_fits(&self, key: &[u8]) -> Result<(), MapError> {
        let size = match self.store {
            Store::Storage(_) => 8,
            _ => self.info.key_size as usize,
        };
        if key.len() == size {
            return Ok(());
        }
        Err(self.error(format!("a key has {size} bytes, not {}", key.len())))
    }
}

impl Maps {
    /// Addresses of all copies of a value: one, or one for each CPU.
    pub(crate) fn user_lookup(
        &mut self,
        memory: &Memory,
        map: usize,
        key: &[u8],
    ) -> Result<Option<Vec<u64>>, MapError> {
        let map = &mut self.maps[map];
        map.key_fits(key)?;
        match &mut map.store {
            Store::Array { copies } => {
                let index = u32::from_le_bytes(key.try_into().expect("arrays have keys of four bytes"));
                if index >= map.info.max_entries {
                    return Ok(None);
                }
                let at = |copy: u32| {
                    let slot = u64::from(copy) * u64::from(map.info.max_entries) + u64::from(index);
                    map.place.values + slot * map.place.stride
                };
                Ok(Some((0..*copies).map(at).collect()))
            }
            Store::Hash { table, copies } => {
                let Some(element) = table.find(memory, key) else { return Ok(None) };
                let first = element + table.value_offset();
                Ok(Some((0..*copies).map(|copy| first + u64::from(copy) * map.place.stride).collect()))
            }
            Store::Trie(trie) => Ok(trie.exact(key).map(|element| vec![element + trie.value_offset()])),
            Store::Storage(table) => {
                Ok(table.find(memory, key).map(|element| vec![element + table.value_offset()]))
            }
            _ => Err(map.error("has no keys")),
        }
    }

    /// Sets every copy of a value, or that of one CPU, making the element if needed.
    pub(crate) fn user_update(
        &mut self,
        memory: &mut Memory,
        map: usize,
        key: &[u8],
        value: &[u8],
        cpu: Option<u32>,
    ) -> Result<(), MapError> {
        self.maps[map].key_fits(key)?;
        if let Store::Bloom(bloom) = &mut self.maps[map].store {
            bloom.push(value);
            return Ok(());
        }
        if value.len() != self.maps[map].info.value_size as usize {
            let size = self.maps[map].info.value_size;
            return Err(self.maps[map].error(format!("a value has {size} bytes, not {}", value.len())));
        }
        let error = self.update_bytes(memory, map, key, 0, |_, _| {});
        let places = if error == 0 { self.user_lookup(memory, map, key)? } else { None };
        let Some(places) = places else {
            return Err(self.maps[map].error(format!("update refused with error {error}")));
        };
        let record = std::sync::Arc::clone(&self.maps[map].place.record);
        if let Some(cpu) = cpu.filter(|cpu| *cpu as usize >= places.len()) {
            return Err(self.maps[map].error(format!("CPU {cpu} has no copy: there are {}", places.len())));
        }
        let wanted =
            places.into_iter().enumerate().filter(|(at, _)| cpu.is_none_or(|cpu| *at == cpu as usize));
        for (_, place) in wanted {
            record.replace(memory, place, value, &mut self.freed);
        }
        Ok(())
    }

    /// All keys, in the order programs visit them.
    pub(crate) fn user_keys(&self, memory: &Memory, map: usize) -> Vec<Vec<u8>> {
        let map = &self.maps[map];
        match &map.store {
            Store::Array { .. } => (0..map.info.max_entries).map(|i| i.to_le_bytes().to_vec()).collect(),
            Store::Hash { table, .. } => table
                .elements()
                .filter_map(|element| memory.bytes(element, map.info.key_size.into()).map(<[u8]>::to_vec))
                .collect(),
            Store::Trie(trie) => trie
                .elements()
                .filter_map(|element| memory.bytes(element, map.info.key_size.into()).map(<[u8]>::to_vec))
                .collect(),
            Store::Storage(table) => {
                table.elements().map(|element| memory.read_u64(element).to_le_bytes().to_vec()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The key after `key`, or the first: how `bpf_map_get_next_key` walks a hash.
    pub(crate) fn user_next_key(&self, memory: &Memory, map: usize, key: Option<&[u8]>) -> Option<Vec<u8>> {
        let map = &self.maps[map];
        match &map.store {
            Store::Hash { table, .. } => {
                let element = table.next(memory, key)?;
                memory.bytes(element, map.info.key_size.into()).map(<[u8]>::to_vec)
            }
            Store::Array { .. } => {
                let key = key.and_then(|key| key.try_into().ok()).map(u32::from_le_bytes);
                let next = key.map_or(0, |key| key.wrapping_add(1));
                (next < map.info.max_entries).then(|| next.to_le_bytes().to_vec())
            }
            _ => None,
        }
    }

    /// Removes an element; `false` if there was none.
    pub(crate) fn user_delete(
        &mut self,
        memory: &mut Memory,
        map: usize,
        key: &[u8],
    ) -> Result<bool, MapError> {
        self.maps[map].key_fits(key)?;
        match self.maps[map].info.map_type {
            kind::ARRAY | kind::PERCPU_ARRAY => {
                Err(self.maps[map].error("elements of an array stay (EINVAL)"))
            }
            _ => Ok(self.delete(memory, map, key) == 0),
        }
    }
}

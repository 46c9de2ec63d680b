//! Damaged objects: whatever the bytes, loading ends with an image or an error, not with a panic.
//!
//! The named kinds of bad input come first; then real objects, cut and flipped at random. A failure prints
//! the object and the changes that replay it.

mod common;

use proptest::prelude::*;
use schedlab_bpf::btf::Btf;
use schedlab_bpf::image::ObjectImage;
use schedlab_bpf::object::LoadError;

fn objects() -> Vec<&'static schedlab_objects::Object> {
    let vtime = schedlab_objects::SCHEDULERS.iter().filter(|o| o.name == "vtime");
    schedlab_objects::TESTS.iter().filter(|o| o.name != "headers").chain(vtime).collect()
}

fn load(bytes: &[u8], kernel: &Btf) -> Result<ObjectImage, LoadError> {
    let result = ObjectImage::load(bytes, "damaged", kernel);
    if let Ok(image) = &result {
        for knob in image.knobs() {
            assert_eq!(image.global(&knob.name), Ok(knob.value));
        }
    }
    result
}

#[test]
fn each_kind_of_bad_input_has_its_own_error() {
    let kernel = common::kernel();
    let good = schedlab_objects::scheduler("vtime").unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        load(&bytes, &kernel).unwrap_err()
    };
    assert_eq!(load(b"", &kernel).unwrap_err(), LoadError::NotElf);
    assert_eq!(load(b"#!/bin/sh\nexit 0\n", &kernel).unwrap_err(), LoadError::NotElf);
    assert!(matches!(with(18, 62), LoadError::NotBpf { .. }));
    assert!(matches!(with(4, 1), LoadError::NotBpf { .. }));
    assert_eq!(with(5, 2), LoadError::BigEndian);
    assert!(matches!(load(&good[..good.len() / 2], &kernel).unwrap_err(), LoadError::Damaged(_)));
    let mut renamed = good.to_vec();
    while let Some(at) = renamed.windows(5).position(|w| w == b".BTF\0") {
        renamed[at + 1] = b'X';
    }
    assert_eq!(load(&renamed, &kernel).unwrap_err(), LoadError::NoBtf);
}

#[test]
fn a_cut_object_is_an_error() {
    let kernel = common::kernel();
    for object in objects() {
        for len in (0..object.bytes.len()).step_by(97) {
            let result = load(&object.bytes[..len], &kernel);
            assert!(result.is_err(), "{} cut at {len}", object.name);
        }
    }
}

/// Byte ranges of the sections that the loader reads; the rest is debug information.
fn interesting(bytes: &[u8]) -> Vec<usize> {
    let number =
        |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
    let (table, count, names) = (number(0x28, 8), number(0x3c, 2), number(0x3e, 2));
    let name_table = number(table + 64 * names + 0x18, 8);
    let mut at: Vec<usize> = (0..64).chain(table..table + 64 * count).collect();
    for i in 0..count {
        let header = table + 64 * i;
        let name = &bytes[name_table + number(header, 4)..];
        if !name.starts_with(b".debug") && !name.starts_with(b".rel.debug") && number(header + 4, 4) != 8 {
            let offset = number(header + 0x18, 8);
            at.extend(offset..offset + number(header + 0x20, 8));
        }
    }
    at
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_panic(
        which in 0usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let objects = objects();
        let object = objects[which % objects.len()];
        let places = interesting(object.bytes);
        let mut bytes = object.bytes.to_vec();
        for (place, value) in changes {
            bytes[*place.get(&places)] = value;
        }
        let _ = load(&bytes, &common::kernel());
    }

    #[test]
    fn damaged_kernel_types_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut types = common::kernel().to_bytes();
        for (place, value) in changes {
            let at = place.index(types.len());
            types[at] = value;
        }
        if let Ok(kernel) = Btf::parse(&types) {
            for object in objects() {
                let _ = load(object.bytes, &kernel);
            }
        }
    }
}

//! Numbers of the kernel that an object expects its user half to fill in.
//!
//! Objects of sched-ext/scx hold no enumerator of sched_ext as a constant: each is a weak read-only variable,
//! `__SCX_DSQ_LOCAL` for `SCX_DSQ_LOCAL`, that every user half sets from the running kernel's types before it
//! loads the object (`SCX_ENUM_SET()`, `import_enums!()`). Without it they would read 0.

use crate::btf::{Btf, Kind};
use crate::image::{MapOrigin, ObjectImage};

/// Prefix of such variables: what follows the underscores is the enumerator.
const PREFIX: &str = "__SCX_";

/// Fills in every such variable that is still 0; those the kernel lacks stay so.
pub(super) fn import(image: &mut ObjectImage, kernel: &Btf) {
    for index in 0..image.globals.len() {
        let global = &image.globals[index];
        if !global.name.starts_with(PREFIX) || image.maps[global.map].origin != MapOrigin::Rodata {
            continue;
        }
        let Some(value) = kernel.enumerator_value(&global.name[2..]) else { continue };
        let (map, start, size) = (global.map, global.offset as usize, (global.size as usize).min(8));
        let is_number = matches!(image.btf.resolved_kind(global.type_id), Kind::Int { .. });
        if let Some(place) = image.maps[map].initial.get_mut(start..start + size)
            && is_number
            && place.iter().all(|byte| *byte == 0)
        {
            place.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
}

impl ObjectImage {
    /// Whether a global variable is one that [`ObjectImage::load`] fills in from the kernel's enumerators.
    #[must_use]
    pub fn is_enumerator(name: &str) -> bool {
        name.starts_with(PREFIX)
    }
}

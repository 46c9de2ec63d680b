//! The global variables of an object, by name: which map they are in, where, and how large.
//!
//! A knob is such a variable; its unit and bounds are declared in the object and judged elsewhere.

use super::Error;
use libbpf_rs::ReferencesType;
use libbpf_rs::btf::{Btf, types};

/// One variable, or one element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    name: String,
    section: String,
    offset: usize,
    bytes: usize,
    /// How many elements it has; 0: it is no array.
    elements: usize,
}

/// All variables of an object.
#[derive(Clone, Debug, Default)]
pub struct Variables(Vec<Variable>);

impl Variables {
    /// The variables of `.data*`, `.rodata*` and `.bss*`.
    pub fn read(btf: &Btf<'_>) -> Self {
        let mut found = Vec::new();
        for section in btf.type_by_kind::<types::DataSec<'_>>() {
            let Some(name) = section.name().map(|name| name.to_string_lossy().into_owned()) else { continue };
            if ![".data", ".rodata", ".bss"].iter().any(|kind| name.starts_with(kind)) {
                continue;
            }
            for member in section.iter() {
                let Some(variable) = btf.type_by_id::<types::Var<'_>>(member.ty) else { continue };
                let Some(label) = variable.name() else { continue };
                let array = types::Array::try_from(variable.referenced_type().skip_mods_and_typedefs());
                found.push(Variable {
                    elements: array.map_or(0, |array| array.capacity()),
                    name: label.to_string_lossy().into_owned(),
                    section: name.clone(),
                    offset: member.offset as usize,
                    bytes: member.size,
                });
            }
        }
        Self(found)
    }

    /// The variable of that name, or the element: `NAME[INDEX]`.
    pub fn find(&self, name: &str) -> Result<Variable, Error> {
        let whole = |name: &str| self.0.iter().find(|variable| variable.name == name).cloned();
        let element = || {
            let (array, index) = name.strip_suffix(']')?.split_once('[')?;
            whole(array)?.element(index.parse().ok()?)
        };
        whole(name).or_else(element).ok_or_else(|| self.unknown(name))
    }

    /// The error for a name that is not there.
    pub fn unknown(&self, name: &str) -> Error {
        let mut known: Vec<&str> = self.0.iter().map(|variable| variable.name.as_str()).collect();
        known.sort_unstable();
        Error::NoKnob { name: name.to_string(), known: known.join(", ") }
    }
}

impl Variable {
    /// One element of an array; `None` if it has no such.
    fn element(&self, index: usize) -> Option<Variable> {
        let bytes = self.bytes.checked_div(self.elements).filter(|_| index < self.elements)?;
        let name = format!("{}[{index}]", self.name);
        Some(Variable { name, offset: self.offset + index * bytes, bytes, elements: 0, ..self.clone() })
    }

    /// Whether libbpf's map of that name holds this variable: `.data.NAME` as it is, `.data` behind the object's name.
    pub fn is_in(&self, map: &str) -> bool {
        map == self.section || map.strip_suffix(&self.section).is_some_and(|object| !object.contains('.'))
    }

    /// Whether its section is frozen when the object is loaded.
    pub fn is_fixed(&self) -> bool {
        self.section.starts_with(".rodata")
    }

    /// Its bytes among those of its section.
    pub fn bytes<'a>(&self, section: &'a [u8]) -> Option<&'a [u8]> {
        section.get(self.offset..self.offset + self.bytes)
    }

    /// Takes the value from its place among the section's bytes; `None` if it is wider than 8 bytes.
    pub fn read(&self, section: &[u8]) -> Option<i64> {
        let place = section.get(self.offset..self.offset + self.bytes)?;
        let mut word = [0; 8];
        word.get_mut(..self.bytes)?.copy_from_slice(place);
        Some(i64::from_le_bytes(word))
    }

    /// Puts `values`, each so many bytes wide, in the first elements of an array. Those that do not fit are left out.
    pub fn write_elements(&self, section: &mut [u8], bytes: usize, values: &[u32]) {
        let Some(place) = section.get_mut(self.offset..self.offset + self.bytes) else { return };
        for (element, value) in place.chunks_exact_mut(bytes).zip(values) {
            element.copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
    }

    /// Puts `value` in its place among the section's bytes.
    pub fn write(&self, section: &mut [u8], value: i64) -> Result<(), Error> {
        let full = value.to_ne_bytes();
        let fits = match self.bytes {
            8 => true,
            1 | 2 | 4 => {
                let bits = self.bytes * 8;
                (value >> (bits - 1) == -1) || (value >> bits == 0)
            }
            _ => false,
        };
        let place = section.get_mut(self.offset..self.offset + self.bytes).filter(|_| fits);
        let place = place.ok_or(Error::KnobSize { name: self.name.clone(), bytes: self.bytes, value })?;
        place.copy_from_slice(&full[..self.bytes]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(bytes: usize) -> Variable {
        Variable { name: "x".into(), section: ".data".into(), offset: 4, bytes, elements: 0 }
    }

    #[test]
    fn values_go_to_their_place() {
        let mut section = [0xff_u8; 12];
        variable(4).write(&mut section, 7).unwrap();
        assert_eq!(section, [255, 255, 255, 255, 7, 0, 0, 0, 255, 255, 255, 255]);
        variable(8).write(&mut section, -1).unwrap();
        assert_eq!(section, [255; 12]);
        assert_eq!(variable(2).read(&section), Some(65_535));
        assert_eq!(variable(9).read(&[0; 16]), None, "no integer");
    }

    #[test]
    fn elements_have_names_and_bounds() {
        let all = Variables(vec![Variable { elements: 3, ..variable(12) }]);
        let mut section = [0_u8; 16];
        all.find("x[1]").unwrap().write(&mut section, 7).unwrap();
        assert_eq!((section[8], all.find("x[1]").unwrap().read(&section)), (7, Some(7)));
        for missing in ["x[3]", "x[-1]", "x[1", "x1]", "y[0]", "x[]"] {
            assert!(all.find(missing).is_err(), "{missing}");
        }
        assert!(Variables(vec![variable(4)]).find("x[0]").is_err(), "no array");
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let mut section = [0_u8; 12];
        assert!(variable(1).write(&mut section, 255).is_ok());
        assert!(variable(1).write(&mut section, -128).is_ok());
        assert!(variable(1).write(&mut section, 256).is_err());
        assert!(variable(1).write(&mut section, -129).is_err());
        assert!(variable(16).write(&mut section, 1).is_err(), "no integer");
        assert!(variable(8).write(&mut section[..8], 1).is_err(), "outside its section");
    }

    #[test]
    fn elements_of_an_array_go_to_their_places() {
        let mut section = [0xff_u8; 10];
        variable(4).write_elements(&mut section, 1, &[1, 2]);
        assert_eq!(section[4..], [1, 2, 255, 255, 255, 255]);
        variable(4).write_elements(&mut section, 2, &[3, 4, 5]);
        assert_eq!(section[4..], [3, 0, 4, 0, 255, 255], "the third has no place");
    }

    #[test]
    fn maps_are_told_apart() {
        assert!(variable(4).is_in("vtime.data"));
        assert!(variable(4).is_in(".data"));
        assert!(!variable(4).is_in("vtime.rodata"));
        assert!(!variable(4).is_in(".data.exit"));
        let exit = Variable { section: ".data.exit".into(), ..variable(4) };
        assert!(exit.is_in(".data.exit") && !exit.is_in("vtime.data"));
    }
}

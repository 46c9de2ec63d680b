//! What commands are given: work, machines, schedulers, as files or by name.

pub mod library;
pub mod machines;
pub mod objects;
pub mod schedulers;
pub mod work;

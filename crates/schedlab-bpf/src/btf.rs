//! BTF: reading, writing and looking up the type information of objects and of simulated kernels.

/// The types of one object or of one kernel.
#[derive(Clone, Debug, Default)]
pub struct Btf {}

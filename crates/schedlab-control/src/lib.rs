//! Loops over a [`schedlab_model::outcome::Machine`]: what to try, in what order, how often.
//!
//! Knows nothing of simulators, kernels or statistics, so the loops that ship run unchanged on any of
//! them. Start at [`compare`]; [`candidates`] says what can be tried.

pub mod candidates;
pub mod compare;

pub use candidates::{CandidateError, parse_candidate, standard_candidates};
pub use compare::{Cell, CompareOptions, CompareRuns, compare};

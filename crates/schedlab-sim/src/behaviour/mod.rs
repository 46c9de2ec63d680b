//! What tasks do: programs over channels. Placeholder of the seam.

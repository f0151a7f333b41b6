//! GPU memory, as numbers.

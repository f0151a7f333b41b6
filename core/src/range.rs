//! Address ranges.

//! How two ends come to agree.

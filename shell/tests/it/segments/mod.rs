//! GPU segments behind indirect keys.

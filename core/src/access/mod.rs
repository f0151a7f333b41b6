//! Who may touch memory now.

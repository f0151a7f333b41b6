//! What `bareverbs-shell` promises, from outside.

mod access_lock;

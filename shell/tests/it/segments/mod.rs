//! GPU segments behind indirect keys.

mod domain_cases;
mod domain_scene;
mod domain_threads;
mod domain_worked;

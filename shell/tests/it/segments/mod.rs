//! GPU segments behind indirect keys.

mod domain_scene;
mod domain_worked;
mod life;

//! GPU segments behind indirect keys, over the software fabric and the CUDA driver in software.

mod binding;
mod binding_failures;
mod binding_faults;
mod binding_growth;
mod binding_scene;
mod binding_surroundings;

//! GPU segments behind indirect keys, over the software fabric and the CUDA driver in software.

mod binding;
mod binding_access;
mod binding_asked;
mod binding_failures;
mod binding_faults;
mod binding_growth;
mod binding_reentry;
mod binding_scene;
mod binding_surroundings;
mod domain_cases;
mod domain_defects;
mod domain_faults;
mod domain_growth_cost;
mod domain_memory;
mod domain_reuse;
mod domain_scanners;
mod domain_scene;
mod domain_threads;
mod domain_waits;
mod domain_worked;
mod life;
mod plain_device_memory;

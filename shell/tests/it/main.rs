//! The shell from outside: one binary for all of it.

mod access_lock;
mod boundary;
mod broken_links;
mod checked_messages;
mod credits;
#[cfg(target_os = "linux")]
mod cuda;
mod device_events;
mod drop_log;
mod every_call_refused;
mod exchange;
mod gid_choice;
mod hostile_surroundings;
mod late_writes;
mod layout_check;
mod ledger;
mod life;
mod listing;
mod local_memory;
mod named_errors;
mod one_sided;
mod own_process;
mod processes;
mod provider_answers;
mod regions;
#[path = "one_sided_scene.rs"]
mod scene;
#[cfg(target_os = "linux")]
mod segments;
mod soft;
mod static_frames;
mod teardown_orders;
mod thunderbolt;
mod unequal_rings;
mod world;
mod wrapped;

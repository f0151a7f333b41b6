//! A refusal that is remembered: which bytes, which device, why, and what to do.

use std::fmt;

use bareverbs_core::range::AddressRange;
use bareverbs_core::view::DeviceName;

use crate::errno::{Errno, locked_memory_limit};
use crate::error::CallError;

/// Why some memory could not be registered on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationFailure {
    region: AddressRange,
    device: DeviceName,
    errno: Option<Errno>,
    reason: String,
    /// As it was when the device refused.
    locked_memory_limit: Option<String>,
    is_recorded: bool,
}

impl RegistrationFailure {
    /// A failure in words. For errno 12 the locked-memory limit is read now.
    pub fn new(region: AddressRange, device: DeviceName, errno: Option<Errno>, reason: impl Into<String>) -> Self {
        let out_of_memory = errno == Some(Errno(libc::ENOMEM));
        let locked_memory_limit = out_of_memory.then(locked_memory_limit);
        Self { region, device, errno, reason: reason.into(), locked_memory_limit, is_recorded: false }
    }

    /// A call that failed.
    pub fn of_call(region: AddressRange, device: DeviceName, error: &CallError) -> Self {
        Self::new(region, device, error.errno, error.call)
    }

    /// The same, as it is with the memory from now on.
    pub(super) fn recorded(self) -> Self {
        Self { is_recorded: true, ..self }
    }

    /// Whether it was recorded with the memory: then the device is not asked again until it is
    /// [forgotten](super::Registrations::forget_failure).
    pub fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Which bytes.
    pub fn region(&self) -> AddressRange {
        self.region
    }

    /// On which device.
    pub fn device(&self) -> &DeviceName {
        &self.device
    }

    /// The error's number, where there is one.
    pub fn errno(&self) -> Option<Errno> {
        self.errno
    }

    /// Why, in words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for RegistrationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, device, errno, reason, locked_memory_limit, is_recorded } = self;
        let (base, len_bytes) = (region.base(), region.len_bytes());
        write!(f, "registering {len_bytes} bytes at {base:#x} on device {device} failed: {reason}")?;
        if let Some(errno) = errno {
            write!(f, ": {errno}")?;
        }
        if let Some(limit) = locked_memory_limit {
            write!(
                f,
                " ({len_bytes} bytes were asked for, and the locked-memory limit was {limit}: see ulimit -l; or the \
                 device is out of regions)"
            )?;
        }
        if *is_recorded {
            f.write_str("; it is not tried again until this failure is forgotten")?;
        }
        Ok(())
    }
}

impl std::error::Error for RegistrationFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(errno: Option<i32>) -> String {
        let region = AddressRange::new(0x7000, 4096).expect("a range");
        let device = DeviceName::new(b"mlx5_0").expect("a name");
        RegistrationFailure::new(region, device, errno.map(Errno), "out of memory keys").to_string()
    }

    #[test]
    fn the_text_has_bounds_device_reason_and_errno_by_number_and_name() {
        let text = failure(Some(libc::EAGAIN));
        let errno = Errno(libc::EAGAIN).to_string();
        for part in ["4096 bytes", "0x7000", "mlx5_0", "out of memory keys", &errno, "EAGAIN"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("ulimit"), "{text}");
        assert!(!failure(None).contains("errno"));
    }

    #[test]
    fn out_of_memory_names_the_size_and_the_locked_memory_limit() {
        let text = failure(Some(libc::ENOMEM));
        assert!(text.contains("4096 bytes were asked for") && text.contains(&locked_memory_limit()), "{text}");
    }
}

//! Who has storage: a count of the parts that are out.
//!
//! The rule this file protects: **storage is claimed anew only when every part of the claim before has come back.** A part
//! that is forgotten never does.

use core::sync::atomic::{AtomicU32, Ordering};

/// The claims of one storage.
#[derive(Debug)]
pub(crate) struct Claims {
    /// Parts of the claim that are out; 0 where there is no claim.
    parts: AtomicU32,
}

impl Claims {
    pub(crate) const fn new() -> Self {
        Self { parts: AtomicU32::new(0) }
    }

    /// The claim, whole; `None` while a part of one is out.
    pub(crate) fn claim(&'static self) -> Option<Claim> {
        // Acquire: what the owners before did to the storage came before their parts came back (`Drop`, release).
        match self.parts.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Claim(Some(self))),
            Err(_) => None,
        }
    }
}

/// A part of a claim. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Claim(Option<&'static Claims>);

impl Claim {
    /// Of memory that nobody claims.
    pub(crate) const NONE: Self = Self(None);

    /// Two parts in place of one.
    pub(crate) fn split(self) -> (Self, Self) {
        let Some(claims) = self.0 else { return (Self::NONE, Self::NONE) };
        // This part is out, so nobody claims meanwhile.
        let counted = claims.parts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |parts| parts.checked_add(1));
        match counted {
            Ok(_) => (self, Self(Some(claims))),
            Err(_) => {
                // More parts than can be counted: this one never comes back, so the storage stays claimed.
                core::mem::forget(self);
                (Self::NONE, Self::NONE)
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(claims) = self.0 {
            // The part was counted when it was made, so the count is 1 at least.
            claims.parts.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_comes_back_when_all_of_its_parts_have() {
        static CLAIMS: Claims = Claims::new();
        let whole = CLAIMS.claim().unwrap();
        let (first, rest) = whole.split();
        let (second, third) = rest.split();
        for part in [second, first, third] {
            assert!(CLAIMS.claim().is_none());
            drop(part);
        }
        drop(CLAIMS.claim().unwrap());
        drop(Claim::NONE.split());
        core::mem::forget(CLAIMS.claim().unwrap());
        assert!(CLAIMS.claim().is_none());
    }

    #[test]
    fn more_parts_than_can_be_counted_keep_the_storage_claimed() {
        static CLAIMS: Claims = Claims { parts: AtomicU32::new(0) };
        let whole = CLAIMS.claim().unwrap();
        CLAIMS.parts.store(u32::MAX - 1, Ordering::Relaxed);
        let (first, last) = whole.split();
        drop(first.split());
        assert_eq!(CLAIMS.parts.load(Ordering::Relaxed), u32::MAX);
        drop(last);
        CLAIMS.parts.store(1, Ordering::Relaxed);
        assert!(CLAIMS.claim().is_none());
    }
}

//! Views: parts, the remote view's wire form, what a device takes as a region.

use bareverbs_core::range::AddressRange;
use bareverbs_core::view::{
    KeyedRange, KeyedRangeError, RegionParts, RegionRefused, RegionRules, RemoteView, RemoteViewError,
};

use crate::exported;

exported! {
    fn proof_keyed_range_part(whole: &KeyedRange, offset_bytes: u64, len_bytes: u64) -> Result<KeyedRange, KeyedRangeError> {
        whole.part(offset_bytes, len_bytes)
    }

    fn proof_remote_view_part(whole: &RemoteView, offset_bytes: u64, len_bytes: u64) -> Result<RemoteView, KeyedRangeError> {
        whole.part(offset_bytes, len_bytes)
    }

    fn proof_remote_view_decode(bytes: &&[u8]) -> Result<RemoteView, RemoteViewError> {
        RemoteView::decode(bytes)
    }

    fn proof_remote_view_encode(view: &RemoteView) -> [u8; 92] {
        view.encode()
    }

    fn proof_region_check(rules: &RegionRules, range: &AddressRange) -> Result<(), RegionRefused> {
        rules.check(*range)
    }

    fn proof_region_parts(parts: &mut RegionParts) -> (Option<AddressRange>, usize) {
        (parts.next(), parts.count())
    }
}

//! A struct that grew, against headers of each generation: the oldest are installed nowhere any more.

use std::fs;

use bareverbs_layout_tests::compiler::Compiler;
use bareverbs_layout_tests::headers::HeaderSet;
use bareverbs_layout_tests::{Finding, Report, Tables, check};
use libtest_mimic::Failed;

use crate::layer::Layer;

const TO_BYTE_46: &str = "
#include <stdint.h>
struct ibv_port_attr {
    unsigned state, max_mtu, active_mtu;
    int gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer;
";
const BEFORE_22: &str = "uint8_t reserved; };\n";
const BEFORE_49: &str = "uint8_t flags; uint16_t port_cap_flags2; };\n";
const SINCE_49: &str = "uint8_t flags; uint16_t port_cap_flags2; uint32_t active_speed_ex; };\n";

const PORT_ATTR: &str = "struct ibv_port_attr";

pub fn layer() -> Layer {
    let mut layer = Layer::new("layouts: a struct that grew", Compiler::of_this_machine().err());
    for (tail, release, absent) in [
        (BEFORE_22, 21, &["flags", "port_cap_flags2", "active_speed_ex"][..]),
        (BEFORE_49, 22, &["active_speed_ex"][..]),
        (BEFORE_49, 48, &["active_speed_ex"][..]),
        (SINCE_49, 49, &[][..]),
    ] {
        layer.test(&format!("the header of rdma-core {release} agrees"), move || {
            for release in [Some(release), None] {
                let report = against(tail, release, &Tables::of_struct_alone(PORT_ATTR))?;
                let absent: Vec<_> = absent.iter().map(|member| format!("{PORT_ATTR}.{member}")).collect();
                assert_eq!((report.absent, report.findings), (absent, vec![]));
            }
            Ok(())
        });
    }
    layer.test("a member that its release ought to have is missed", || {
        let findings = against(BEFORE_49, Some(49), &Tables::of_struct_alone(PORT_ATTR))?.findings;
        assert_eq!(findings, [Finding::Missing { what: format!("{PORT_ATTR}.active_speed_ex"), since: Some(49) }]);
        Ok(())
    });
    layer.test("a wrong size of an older header is found", || {
        let mut tables = Tables::of_struct_alone(PORT_ATTR);
        let grew: &mut [_] = tables.structs[0].grew.to_vec().leak();
        grew[1].size_before_bytes = 56;
        tables.structs[0].grew = grew;
        let findings = against(BEFORE_49, Some(44), &tables)?.findings;
        assert_eq!(findings, [Finding::Differs { what: format!("{PORT_ATTR}: size"), expected: 56, got: 52 }]);
        Ok(())
    });
    layer
}

fn against(tail: &str, release: Option<u16>, tables: &Tables) -> Result<Report, Failed> {
    let folder = tempfile::tempdir()?;
    fs::create_dir(folder.path().join("infiniband"))?;
    fs::write(folder.path().join("infiniband/verbs.h"), format!("{TO_BYTE_46}{tail}"))?;
    fs::write(folder.path().join("infiniband/mlx5dv.h"), "")?;
    let headers = HeaderSet::in_folder("a header of our own", folder.path(), release)?;
    Ok(check(tables, &headers))
}

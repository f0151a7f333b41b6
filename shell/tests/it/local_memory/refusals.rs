//! Refusals that are remembered: case G2.

use std::sync::Arc;

use bareverbs_shell::errno::{Errno, locked_memory_limit};
use bareverbs_shell::memory::{Backend, HostDomain, LocalMemory, OwnedBytes, RegisterError, RegistrationFailure};
use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
use bareverbs_shell::soft::{Answer, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::ledger::calls_of;

fn refused(domain: &HostDomain, memory: &LocalMemory) -> Arc<RegistrationFailure> {
    match domain.register(memory) {
        Err(RegisterError::Failed(failure)) => failure,
        other => panic!("the device was to refuse: {other:?}"),
    }
}

#[test]
fn g2_a_refusal_is_asked_for_once_and_told_by_every_handle_until_it_is_forgotten() {
    for number in [libc::EAGAIN, libc::ENOMEM] {
        let devices = vec![SoftDevice::new("mlx5_0"), SoftDevice::new("mlx5_1")];
        let config = SoftConfig::default().devices(devices).record(Record::Bounded(1000));
        let soft = SoftFabric::new(config).expect("a free slot");
        let [first, second] = ["mlx5_0", "mlx5_1"].map(|name| {
            let context = DeviceContext::open(&soft.symbols(), Some(name)).expect("the device");
            let domain = ProtectionDomain::new(&context, 1).expect("a domain");
            HostDomain::new(&domain).expect("the device can be asked")
        });
        let owner = OwnedBytes::from(vec![0; 4321]);
        let memory = LocalMemory::new(owner.clone()).expect("host memory");
        let calls = || calls_of(&soft.record(), "ibv_reg_mr");

        soft.fail("ibv_reg_mr", 1, Answer::null(number));
        let failure = refused(&first, &memory);
        let text = failure.to_string();
        let addr = format!("{:#x}", memory.addr());
        for part in [&*addr, "4321 bytes", "mlx5_0", "ibv_reg_mr", &Errno(number).to_string(), "not tried again until"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        if number == libc::ENOMEM {
            let limit = locked_memory_limit();
            assert!(text.contains("4321 bytes were asked for") && text.contains(&limit), "{text}");
        }
        // It would succeed now, and is not asked again: by no handle.
        for _ in 0..3 {
            assert_eq!(refused(&first, &memory).to_string(), text);
        }
        let upgraded = memory.downgrade().expect("it has a weak form").upgrade().expect("it lives");
        for handle in [&memory.clone(), &upgraded] {
            let told = handle.registrations(Backend::VERBS).registered("mlx5_0").failure();
            assert_eq!(told.map(|told| told.to_string()), Some(text.clone()));
            assert_eq!(refused(&first, handle).to_string(), text);
        }
        assert_eq!(calls(), 1);
        // The other device is not affected, and a handle that is built anew starts clean.
        let other = second.register(&memory).expect("another device");
        assert_eq!((calls(), other.device().as_str()), (2, "mlx5_1"));
        let anew = LocalMemory::new(owner).expect("host memory");
        assert!(first.register(&anew).is_ok());
        assert_eq!(calls(), 3);
        // Forgotten: one new call.
        let forgotten = memory.registrations(Backend::VERBS).forget_failure("mlx5_0");
        assert_eq!(forgotten.map(|failure| failure.to_string()), Some(text));
        let key = first.register(&upgraded).expect("it is asked again").lkey();
        assert_eq!((calls(), first.register(&memory).expect("in force").lkey()), (4, key));
        assert_eq!(calls(), 4);
    }
}

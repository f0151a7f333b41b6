#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bareverbs_fuzz::one_sided(bytes));

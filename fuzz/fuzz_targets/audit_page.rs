#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| orgdata_exporter_fuzz::audit_page(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| orgdata_exporter::fuzz::error_body(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| orgdata_exporter_fuzz::accept_header(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| orgdata_exporter::fuzz::collector_answer(data));

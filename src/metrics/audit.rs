//! stub
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
/// stub
#[derive(Debug)]
pub struct AuditMetrics {}
impl AuditMetrics {
    /// stub
    pub fn new(_zero_hold: std::time::Duration) -> Self {
        Self {}
    }
}
impl Collector for AuditMetrics {
    fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        Ok(())
    }
}

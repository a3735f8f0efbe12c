//! What is known of the families of metrics beyond what the program shows of them by itself.

/// Absent until there is something to show: their labels come with it, or their absence says that there is nothing.
pub(crate) const ABSENT_AT_FIRST: [&str; 17] = [
    "orgdata_certificate_not_after_timestamp_seconds",
    "orgdata_audit_events_total",
    "orgdata_audit_actor_info",
    "orgdata_audit_newest_event_timestamp_seconds",
    "orgdata_audit_walk_pages",
    "orgdata_deals_with_open_tickets",
    "orgdata_open_tickets",
    "orgdata_open_tickets_deal_amount",
    "orgdata_open_tickets_older_than",
    "orgdata_open_tickets_oldest_created_timestamp_seconds",
    "orgdata_open_tickets_overdue",
    "orgdata_otlp_oldest_unsent_timestamp_seconds",
    "orgdata_tickets",
    "orgdata_tickets_deal_amount",
    "orgdata_tickets_malformed",
    "orgdata_tickets_snapshot_consistent",
    "orgdata_tickets_snapshot_duration_seconds",
];

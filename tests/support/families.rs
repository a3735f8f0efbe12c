//! What the program does not show of its families from the start.

/// Absent until there is something to show: their labels come with it, or their absence means that there is nothing.
pub(crate) const ABSENT_AT_FIRST: [&str; 24] = [
    "orgdata_certificate_not_after_timestamp_seconds",
    "orgdata_audit_complete_through_timestamp_seconds",
    "orgdata_audit_events_total",
    "orgdata_audit_actor_info",
    "orgdata_audit_newest_event_timestamp_seconds",
    "orgdata_audit_sweep_age_seconds",
    "orgdata_deals_with_open_tickets",
    "orgdata_deals_with_open_tickets_amount",
    "orgdata_open_tickets",
    "orgdata_open_tickets_deal_amount",
    "orgdata_open_tickets_older_than",
    "orgdata_open_tickets_oldest_created_timestamp_seconds",
    "orgdata_open_tickets_overdue",
    "orgdata_organization_info",
    "orgdata_otlp_delivered_through_timestamp_seconds",
    "orgdata_otlp_oldest_unsent_timestamp_seconds",
    "orgdata_tickets",
    "orgdata_tickets_closed",
    "orgdata_tickets_deal_amount",
    "orgdata_tickets_malformed",
    "orgdata_tickets_opened",
    "orgdata_tickets_snapshot_consistent",
    "orgdata_tickets_snapshot_duration_seconds",
    "orgdata_tickets_time_to_close_seconds",
];

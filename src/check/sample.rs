//! What a page shows of the service: whether its items can be read, whose they are, and what is odd about it.

use std::collections::HashSet;

use jiff::Timestamp;

use crate::api::{AuditPage, Cursor, Entry, Probe, Ticket, TicketPage, parse_time};

/// What a page shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) items: usize,
    /// The service's own count, of tickets.
    pub(super) total: Option<u64>,
    /// Fields that the specification does not name.
    pub(super) unknown_fields: u64,
    /// How many items cannot be read as documented, and what is wrong with the first of them.
    pub(super) malformed: Option<(usize, String)>,
    /// Items that are there again.
    pub(super) repeats: usize,
    /// Whose the items are.
    pub(super) organization: Option<String>,
    /// When the newest item was created.
    pub(super) newest: Option<Timestamp>,
    /// Where older entries begin, and whether the service says that there are any.
    pub(super) older: Option<Cursor>,
    pub(super) has_more: bool,
    /// The service's clock.
    pub(super) date: Option<Timestamp>,
}

/// What one item shows.
struct Item {
    id: Option<String>,
    organization: Option<String>,
    created: Option<Timestamp>,
    unknown_fields: u64,
}

// === impl Sample ===

impl Sample {
    pub(super) fn of_audit(probe: Probe<AuditPage>) -> Self {
        let Probe {
            page,
            unknown_fields,
            date,
        } = probe;
        let sample = Self {
            unknown_fields,
            date,
            older: page.end_cursor.clone(),
            has_more: page.has_more,
            ..Self::default()
        };
        sample.with_items(page.items(), |raw| {
            let (entry, unknown_fields) = Entry::parse(raw).map_err(|error| error.to_string())?;
            Ok(Item {
                id: Some(entry.id.to_string()),
                organization: Some(entry.organization_id.to_string()),
                created: parse_time(&entry.created_at),
                unknown_fields,
            })
        })
    }

    pub(super) fn of_tickets(probe: Probe<TicketPage>) -> Self {
        let Probe {
            page,
            unknown_fields,
            date,
        } = probe;
        let sample = Self {
            unknown_fields,
            date,
            total: page.total_count,
            ..Self::default()
        };
        sample.with_items(page.items(), |raw| {
            // serde would read an array as the fields in their order.
            if !raw.starts_with('{') {
                return Err("it is not an object".to_owned());
            }
            let (ticket, unknown_fields) = Ticket::parse(raw).map_err(|error| error.to_string())?;
            if ticket.id.is_none() {
                return Err("missing field `id`".to_owned());
            }
            Ok(Item {
                id: ticket.id.map(|id| id.to_string()),
                organization: ticket.organization_id.map(|id| id.to_string()),
                created: ticket.created_at.as_deref().and_then(parse_time),
                unknown_fields,
            })
        })
    }

    fn with_items<'a>(
        mut self,
        items: impl Iterator<Item = &'a str>,
        read: impl Fn(&'a str) -> Result<Item, String>,
    ) -> Self {
        let mut ids = HashSet::new();
        for raw in items {
            self.items += 1;
            match read(raw) {
                Ok(item) => {
                    self.repeats += usize::from(item.id.is_some_and(|id| !ids.insert(id)));
                    self.organization = self.organization.or(item.organization);
                    self.newest = self.newest.max(item.created);
                    self.unknown_fields += item.unknown_fields;
                }
                Err(error) => match &mut self.malformed {
                    Some((count, _)) => *count += 1,
                    None => self.malformed = Some((1, error)),
                },
            }
        }
        self
    }
}
